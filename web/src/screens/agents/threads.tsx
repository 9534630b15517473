import type { Thread } from '@langchain/langgraph-sdk';
import type { FormEvent } from 'react';
import { Button } from '../../components/button.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { readForm } from '../../components/read-form.ts';
import { SearchField } from '../../components/search-field.tsx';
import { Select } from '../../components/select.tsx';
import { EmptyState, MoreButton, PagesState } from '../../components/states.tsx';
import { TextCell, TimeCell } from '../../components/text.tsx';
import { useThreads } from './agent-queries.ts';
import { threadStatuses } from './search.ts';
import { ThreadStatus } from './status.tsx';
import { ThreadView } from './thread.tsx';
import { useDeploymentSearch } from './use-deployment-search.ts';

/** The threads of a deployment, or one of them. */
export function Threads() {
  const { search } = useDeploymentSearch();
  return search.thread === undefined ? <ThreadList /> : <ThreadView key={search.thread} threadId={search.thread} />;
}

function ThreadList() {
  const { search, change } = useDeploymentSearch();
  const { threads, isUsable } = useThreads(search);
  const rows = threads.data?.pages.flat() ?? [];
  const empty = (
    <EmptyState title={search.find || search.status ? 'No thread matches' : 'There are no threads yet'}>
      {search.find || search.status ? (
        'Change or remove the filter.'
      ) : (
        <Button onClick={() => change({ tab: 'Playground' })}>Open the playground</Button>
      )}
    </EmptyState>
  );
  return (
    <>
      <Filter />
      {!isUsable ? (
        <EmptyState title="Not a filter of threads">
          Enter the id of a thread, or metadata as <code>key=value</code>.
        </EmptyState>
      ) : (
        <PagesState pages={threads} rows={rows} label="Loading threads" empty={empty}>
          <PlainTable
            label="Threads"
            columns={['Thread', 'Status', 'Graph', 'Changed', 'Created']}
            footer={<MoreButton pages={threads} label="Show more threads" />}
          >
            {rows.map((thread) => (
              <ThreadRow
                key={thread.thread_id}
                thread={thread}
                onOpen={() => change({ thread: thread.thread_id, checkpoint: undefined, compare: undefined })}
              />
            ))}
          </PlainTable>
        </PagesState>
      )}
    </>
  );
}

function ThreadRow({ thread, onOpen }: { readonly thread: Thread; readonly onOpen: () => void }) {
  const { thread_id, status, metadata, updated_at, created_at } = thread;
  return (
    <tr>
      <td>
        <button type="button" className="agents-link mono" onClick={onOpen}>
          {thread_id}
        </button>
      </td>
      <td>
        <ThreadStatus status={status} />
      </td>
      <TextCell text={String(metadata?.graph_id ?? '')} />
      <TimeCell at={updated_at} />
      <TimeCell at={created_at} />
    </tr>
  );
}

function Filter() {
  const { search, change } = useDeploymentSearch();
  const submit = (event: FormEvent<HTMLFormElement>) => change({ find: readForm(event)('find') || undefined });
  return (
    <form className="row wrap agents-filter" onSubmit={submit} aria-label="Filter threads">
      <SearchField
        key={search.find}
        name="find"
        className="input agents-find"
        label="Id or metadata"
        placeholder="Id, or key=value of the metadata"
        value={search.find}
      />
      <Select
        aria-label="Status"
        value={search.status ?? ''}
        onChange={(status) => change({ status: status || undefined }, true)}
        options={[['', 'any status'], ...threadStatuses.map((each) => [each, each] as const)]}
      />
      <Button type="submit">Find</Button>
    </form>
  );
}
