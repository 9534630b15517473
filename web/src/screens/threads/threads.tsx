import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useMemo } from 'react';
import { type Answer, call, readFrom } from '../../api/client.ts';
import { useReadTime } from '../../api/read-time.ts';
import { Button } from '../../components/button.tsx';
import { formatCompact, formatCost, formatCount, formatPercent, formatSeconds } from '../../components/format.ts';
import { Icon } from '../../components/icon.tsx';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, ErrorState, PagesState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { type TableColumn, VirtualTable } from '../../components/virtual-table.tsx';
import { Preview } from '../traces/columns.tsx';
import { FilterBar } from '../traces/filter-bar.tsx';
import { Figures, ProjectHead, useProject } from '../traces/project-head.tsx';
import { RangeMenu } from '../traces/range-menu.tsx';
import { buildConditions } from '../traces/search.ts';
import '../traces/traces.css';
import type { ThreadsSearch } from './search.ts';
import { Thread } from './thread.tsx';

const route = getRouteApi('/shell/projects/$projectId/threads');
const lists = ['threads', 'threads-stats'];
const pageSize = 50;

type ThreadRow = Answer<'post', '/api/v2/threads/query'>['items'][number];
const getKey = ({ thread_id }: ThreadRow) => thread_id;

const columns: readonly TableColumn<ThreadRow>[] = [
  {
    id: 'thread',
    label: 'Thread',
    width: 130,
    grow: 1,
    render: ({ thread_id }) => (
      <Link
        from="/projects/$projectId/threads"
        search={(before) => ({ ...before, thread: thread_id })}
        tabIndex={-1}
        onClick={(event) => event.stopPropagation()}
      >
        <Value text={thread_id} />
      </Link>
    ),
  },
  { id: 'turns', label: 'Turns', width: 50, isNumber: true, render: ({ count }) => formatCount(count) },
  {
    id: 'first',
    label: 'First message',
    width: 150,
    grow: 2,
    render: ({ first_inputs }) => <Preview text={first_inputs} />,
  },
  {
    id: 'last',
    label: 'Last message or error',
    width: 150,
    grow: 2,
    render: ({ last_outputs, last_error }) =>
      last_outputs ? (
        <Preview text={last_outputs} />
      ) : (
        <span className="error-text">
          <Value text={last_error ?? ''} />
        </span>
      ),
  },
  { id: 'activity', label: 'Last activity', width: 106, render: ({ max_start_time }) => <Time at={max_start_time} /> },
  {
    id: 'errors',
    label: 'Errors',
    width: 50,
    isNumber: true,
    render: ({ num_errored_turns: errors }) => (
      <span className={errors > 0 ? 'error-text' : 'muted'}>{formatCount(errors)}</span>
    ),
  },
  {
    id: 'latency',
    label: 'Latency p50',
    width: 80,
    isNumber: true,
    render: ({ latency_p50 }) => formatSeconds(latency_p50),
  },
  {
    id: 'tokens',
    label: 'Tokens',
    width: 64,
    isNumber: true,
    render: ({ total_tokens }) => formatCompact(total_tokens || null),
  },
  { id: 'cost', label: 'Cost', width: 76, isNumber: true, render: ({ total_cost }) => formatCost(total_cost) },
];
/** Columns of a narrow window. */
const narrow = Object.fromEntries(columns.map(({ id }) => [id, ['thread', 'turns', 'activity'].includes(id)]));

/** Threads of a project, or one of them. */
export function Threads() {
  const { projectId } = route.useParams();
  const { thread } = route.useSearch();
  return thread === undefined ? (
    <ThreadsOfProject />
  ) : (
    <Thread key={`${projectId} ${thread}`} projectId={projectId} threadId={thread} />
  );
}

function ThreadsOfProject() {
  const { projectId } = route.useParams();
  const search = route.useSearch();
  const navigate = useNavigate({ from: '/projects/$projectId/threads' });
  const change = (changes: Partial<ThreadsSearch>) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  const project = useProject(projectId);
  const { pages, stats, restart } = useThreads(projectId, search);
  const { data: figures } = stats;
  useShortcuts({
    r: { label: 'Refresh', run: restart },
    'j / k': { label: 'Next or previous thread' },
    Enter: { label: 'Open the thread' },
  });
  const rows = useMemo(() => pages.data?.pages.flatMap(({ items }) => items) ?? [], [pages.data]);
  if (project.error && !project.data) {
    const retry = () => {
      void project.refetch();
      restart();
    };
    return <ErrorState isPage error={project.error} onRetry={retry} />;
  }
  const empty = (
    <EmptyState title="No threads match">
      Traces are in a thread if the metadata of their root run have a <code>thread_id</code>. Widen the time range
      {search.filter ? ' or remove the filter' : ''} to see older ones.
    </EmptyState>
  );
  return (
    <div className="traces">
      <ProjectHead projectId={projectId} name={project.data?.name} search={search}>
        <RangeMenu search={search} onChange={change} />
        <Button kind="icon" aria-label="Refresh" title="Refresh (r)" onClick={restart}>
          <Icon name="refresh" />
        </Button>
      </ProjectHead>
      <div className="traces-filter">
        <FilterBar filter={search.filter} facets={[]} onChange={(filter) => change({ filter })} />
      </div>
      <Figures
        query={stats}
        figures={{
          Threads: formatCount(figures?.thread_count),
          Turns: formatCount(figures?.trace_count),
          Errors: formatPercent(figures?.error_rate),
          'Latency p50': formatSeconds(figures?.latency_p50_seconds),
          'Latency p99': formatSeconds(figures?.latency_p99_seconds),
          Tokens: formatCompact(figures?.total_tokens),
          Cost: formatCost(figures?.total_cost),
        }}
      />
      <PagesState pages={pages} rows={rows} label="Loading threads" empty={empty}>
        <VirtualTable
          label="Threads"
          columns={columns}
          visibility={window.innerWidth < 700 ? narrow : undefined}
          rows={rows}
          getKey={getKey}
          onOpen={({ thread_id }) => void navigate({ search: (before) => ({ ...before, thread: thread_id }) })}
          pages={pages}
          rowName="thread"
        />
      </PagesState>
    </div>
  );
}

function useThreads(projectId: string, search: ThreadsSearch) {
  const { thread, ...filters } = search;
  const { now, readAnew } = useReadTime(lists, projectId, filters);
  const key = [projectId, filters, now] as const;
  const scope = useMemo(() => {
    const { min_start_time, max_start_time, filter } = buildConditions(projectId, search, now);
    return {
      project_id: projectId,
      min_start_time,
      max_start_time: max_start_time ?? null,
      filter: filter ?? null,
    };
  }, [projectId, search, now]);
  const pages = useInfiniteQuery({
    queryKey: ['threads', ...key],
    queryFn: ({ pageParam, signal }) =>
      call('post', '/api/v2/threads/query', { body: { ...scope, page_size: pageSize, cursor: pageParam }, signal }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => (page.has_more ? page.next_cursor : undefined),
    placeholderData: keepPreviousData,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const stats = useQuery({
    queryKey: ['threads-stats', ...key],
    ...readFrom('post', '/api/v2/threads/stats', {
      body: {
        ...scope,
        select: [
          'THREAD_COUNT',
          'TRACE_COUNT',
          'ERROR_RATE',
          'LATENCY_P50',
          'LATENCY_P99',
          'TOTAL_TOKENS',
          'TOTAL_COST',
        ],
      },
    }),
    placeholderData: keepPreviousData,
  });
  return { pages, stats, restart: readAnew };
}
