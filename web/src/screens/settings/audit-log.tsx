import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { call } from '../../api/client.ts';
import { Button } from '../../components/button.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { readForm } from '../../components/read-form.ts';
import { EmptyState, MoreButton, PagesState } from '../../components/states.tsx';
import { TextCell, TimeCell, Value } from '../../components/text.tsx';

/** Changes with their actors, newest first. */
export function AuditLog() {
  const [filter, setFilter] = useState<{ actor?: string | undefined; action?: string | undefined }>({});
  const log = useInfiniteQuery({
    queryKey: ['audit-logs', filter],
    queryFn: ({ pageParam, signal }) =>
      call('get', '/api/v1/audit-logs', {
        query: { limit: 100, ...filter, cursor: pageParam ?? undefined },
        signal,
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.cursor,
    placeholderData: keepPreviousData,
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    const read = readForm(event);
    setFilter({ actor: read('actor') || undefined, action: read('action') || undefined });
  };
  const items = log.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <div className="settings-body stack">
      <form className="row wrap" onSubmit={submit} aria-label="Filter the audit log">
        <input
          className="input"
          name="actor"
          aria-label="Actor"
          placeholder="Actor, such as an email"
          data-shortcut="/"
        />
        <input className="input" name="action" aria-label="Action" placeholder="Action, such as api_key" />
        <Button type="submit">Filter</Button>
      </form>
      <PagesState
        pages={log}
        rows={items}
        empty={<EmptyState title="No entries">Change or clear the filter.</EmptyState>}
      >
        <PlainTable
          label="Audit log"
          columns={['Time', 'Actor', 'Action', 'Target', 'Address', 'Details']}
          footer={<MoreButton pages={log} label="Show older entries" />}
        >
          {items.map(({ id, at, actor, action, target, ip, details }) => (
            <tr key={id}>
              <TimeCell at={at} />
              <td className="text-cell" title={actor.kind}>
                <Value text={actor.name ?? actor.id ?? actor.kind} />
              </td>
              <td className="mono">{action}</td>
              <TextCell text={target?.name ?? target?.id ?? ''} />
              <td>{ip ?? ''}</td>
              <td className="text-cell mono">
                <Value text={Object.keys(details).length === 0 ? '' : JSON.stringify(details)} />
              </td>
            </tr>
          ))}
        </PlainTable>
      </PagesState>
    </div>
  );
}
