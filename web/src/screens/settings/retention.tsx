import { keepPreviousData, useInfiniteQuery, useMutation, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useDeferredValue, useState } from 'react';
import { type Answer, type Body, call, readByOffset } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { listOptions, Select } from '../../components/select.tsx';
import { EmptyState, MoreButton, PagesState, Problem } from '../../components/states.tsx';
import { showInvisible, TextCell } from '../../components/text.tsx';

const pageSize = 50;
type Project = Answer<'get', '/api/v1/sessions'>[number];
type Change = Pick<Body<'patch', '/api/v1/sessions/{session_id}'>, 'trace_tier' | 'longlived_ttl_days'>;

/** Retention of the traces of each project of the workspace. */
export function Retention() {
  const client = useQueryClient();
  const canChange = usePermission('projects:update');
  const [name, setName] = useState('');
  const wanted = useDeferredValue(name.trim());
  const projects = useInfiniteQuery({
    queryKey: ['retention', wanted],
    ...readByOffset('/api/v1/sessions', pageSize, {
      query: { sort_by: 'name', sort_by_desc: false, name_contains: wanted || undefined },
    }),
    placeholderData: keepPreviousData,
  });
  const change = useMutation({
    mutationFn: ({ id, body }: { id: string; body: Change }) =>
      call('patch', '/api/v1/sessions/{session_id}', { path: { session_id: id }, body }),
    onSuccess: () => client.invalidateQueries({ queryKey: ['retention'] }),
  });
  const rows = projects.data?.pages.flat() ?? [];
  const empty = (
    <EmptyState title={wanted === '' ? 'This workspace has no projects' : 'No project has this name'}>
      {wanted === '' ? 'The first trace of a project creates it.' : 'Change or clear the search.'}
    </EmptyState>
  );
  return (
    <div className="settings-body stack">
      <p className="muted">
        The installation sets the days of the tiers, RUNLAKE_RETENTION_SHORTLIVED_DAYS and
        RUNLAKE_RETENTION_LONGLIVED_DAYS; without these, traces are kept forever. Feedback makes a trace longlived. A
        change applies to traces that begin afterwards.
      </p>
      <SearchField className="input settings-search" label="Find a project" value={name} onChange={setName} />
      <Problem message={change.error?.message} />
      <PagesState pages={projects} rows={rows} empty={empty}>
        <PlainTable
          label="Retention of projects"
          columns={['Project', 'Tier of new traces', 'Days of longlived traces']}
          footer={<MoreButton pages={projects} label="Show more projects" />}
        >
          {rows.map((project) => (
            <RetentionRow
              // A saved change resets the form of the row.
              key={`${project.id} ${project.trace_tier} ${project.longlived_ttl_days}`}
              project={project}
              canChange={canChange}
              isBusy={change.isPending}
              onChange={(body) => change.mutate({ id: project.id, body })}
            />
          ))}
        </PlainTable>
      </PagesState>
    </div>
  );
}

const tiers = { longlived: 'Longlived', shortlived: 'Shortlived' } as const;

function RetentionRow({
  project: { name, trace_tier, longlived_ttl_days },
  canChange,
  isBusy,
  onChange,
}: {
  readonly project: Project;
  readonly canChange: boolean;
  readonly isBusy: boolean;
  readonly onChange: (change: Change) => void;
}) {
  const [days, setDays] = useState(longlived_ttl_days === null ? '' : String(longlived_ttl_days));
  const shown = showInvisible(name);
  const stored = longlived_ttl_days === null ? '' : String(longlived_ttl_days);
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    onChange({ longlived_ttl_days: days === '' ? null : Number(days) });
  };
  return (
    <tr>
      <TextCell text={name} />
      <td>
        <Select
          aria-label={`Tier of ${shown}`}
          disabled={!canChange || isBusy}
          value={trace_tier ?? 'longlived'}
          onChange={(tier) => onChange({ trace_tier: tier })}
          options={listOptions(tiers)}
        />
      </td>
      <td>
        <form className="row" onSubmit={submit}>
          <input
            className="input settings-days"
            type="number"
            min={1}
            max={36_500}
            aria-label={`Days of ${shown}`}
            placeholder="As the tier"
            disabled={!canChange}
            // Saving resets the row, so input during the request would be lost.
            readOnly={isBusy}
            value={days}
            onChange={({ target }) => setDays(target.value)}
          />
          {canChange && (
            <Button type="submit" aria-label={`Save the days of ${shown}`} disabled={isBusy || days === stored}>
              Save
            </Button>
          )}
        </form>
      </td>
    </tr>
  );
}
