import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useRef } from 'react';
import { call } from '../../api/client.ts';
import { Crumb, CrumbSeparator } from '../../components/crumb.tsx';
import { formatCompact, formatCost, formatCount, formatSeconds } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, ErrorState, LoadingState, MoreButton, NewerRuns } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import '../trace/trace.css';
import { describeFeedback } from '../traces/columns.tsx';
import { Figures, useProject } from '../traces/project-head.tsx';
import { type RunRow, useRunPages } from '../traces/use-runs.ts';
import { buildThreadFilter } from './search.ts';
import './threads.css';
import { type NumberedTurn, Turns } from './turns.tsx';

const allTime = '1970-01-01T00:00:00Z';
const pageSize = 20;
const livePollMs = 5000;
const selects = [
  'ID',
  'NAME',
  'STATUS',
  'START_TIME',
  'LATENCY_SECONDS',
  'TOTAL_TOKENS',
  'TOTAL_COST',
  'FEEDBACK_STATS',
] as const;

/** A thread as a conversation. */
export function Thread({ projectId, threadId }: { readonly projectId: string; readonly threadId: string }) {
  const project = useProject(projectId);
  const summary = useSummary(projectId, threadId);
  const { data } = summary;
  return (
    <div className="thread">
      <header className="page-head">
        <Crumb to="/projects" label="Projects" />
        <Link to="/projects/$projectId" params={{ projectId }} className="crumb thread-crumb clip">
          <Value text={project.data?.name ?? '…'} />
        </Link>
        <CrumbSeparator />
        <Link
          from="/projects/$projectId/threads"
          to="/projects/$projectId/threads"
          search={(before) => ({ ...before, thread: undefined })}
          className="crumb"
        >
          Threads
        </Link>
        <CrumbSeparator />
        <Heading text={threadId} />
      </header>
      <Figures
        query={summary}
        figures={{
          Turns: formatCount(data?.count),
          'First turn': <Time at={data?.min_start_time} />,
          'Last turn': <Time at={data?.max_start_time} />,
          Errors: formatCount(data?.num_errored_turns),
          'Latency p50': formatSeconds(data?.latency_p50),
          Tokens: formatCompact(data?.total_tokens),
          Cost: formatCost(data?.total_cost),
          ...(data?.feedback_stats ? { Feedback: <Value text={describeFeedback(data.feedback_stats)} /> } : {}),
        }}
      />
      <ThreadTurns projectId={projectId} threadId={threadId} />
    </div>
  );
}

function useSummary(projectId: string, threadId: string) {
  return useQuery({
    queryKey: ['thread', projectId, threadId],
    queryFn: async ({ signal }) => {
      const filter = buildThreadFilter(threadId);
      const body = { project_id: projectId, min_start_time: allTime, filter, page_size: 1 };
      return (await call('post', '/api/v2/threads/query', { body, signal })).items[0] ?? null;
    },
    refetchInterval: livePollMs,
  });
}

/** The turns of a thread, oldest first. New turns appear within seconds. */
export function ThreadTurns({ projectId, threadId }: { readonly projectId: string; readonly threadId: string }) {
  /** Number of turns when the newest ones were shown. */
  const shownTurns = useRef(0);
  const list = useRef<HTMLOListElement>(null);
  const summary = useSummary(projectId, threadId);
  const { pages, rows, liveError, catchUp } = useRunPages({
    key: ['thread', projectId, threadId],
    conditions: {
      project_ids: [projectId],
      min_start_time: allTime,
      is_root: true,
      filter: buildThreadFilter(threadId),
    },
    selects,
    pageSize,
    isLive: true,
  });
  if (catchUp === undefined) shownTurns.current = summary.data?.count ?? 0;
  const move = (step: number) => {
    const turns = [...(list.current?.children ?? [])] as HTMLElement[];
    const at = turns.findIndex((turn) => turn.contains(document.activeElement));
    turns.at(at < 0 ? -1 : Math.max(0, Math.min(turns.length - 1, at + step)))?.focus();
  };
  useShortcuts({
    j: { label: 'Next turn', run: () => move(1) },
    k: { label: 'Previous turn', run: () => move(-1) },
    Enter: { label: 'Open the trace of the turn' },
  });
  if (rows.length === 0) {
    if (pages.error) return <ErrorState error={pages.error} onRetry={() => void pages.refetch()} />;
    if (!pages.isPending)
      return (
        <EmptyState title="This thread has no turns">
          No trace of the project has this thread id. It may have been deleted, or not have arrived yet.
        </EmptyState>
      );
  }
  if (pages.isPending || summary.isPending) return <LoadingState label="Loading the thread" />;
  const first = Math.max(shownTurns.current, rows.length) - rows.length + 1;
  return (
    <>
      {liveError && (
        <p className="thread-notice error-text" role="alert">
          Not up to date: {liveError.message}
        </p>
      )}
      <NewerRuns onShow={catchUp} />
      <section className="thread-scroll" aria-label="Conversation" tabIndex={0}>
        <div>
          <MoreButton pages={pages} label="Show earlier turns" />
          <ol className="turns" ref={list}>
            {groupTurns(rows, pages.data?.pages ?? [], first).map((turns) => (
              <Turns key={turns[0]?.row.id} projectId={projectId} turns={turns} />
            ))}
          </ol>
        </div>
      </section>
    </>
  );
}

/**
 * Groups turns whose values are read in one request, oldest first: those of each page, and newer ones in groups of a
 * page. Turns that have not ended, which are read again and again, are groups of their own.
 *
 * @param rows The turns, newest first.
 * @param first Number of the oldest turn.
 */
function groupTurns(
  rows: readonly RunRow[],
  pages: readonly { readonly items: readonly RunRow[] }[],
  first: number,
): readonly (readonly NumberedTurn[])[] {
  const pageById = new Map<string | undefined, number>();
  for (const [index, { items }] of pages.entries()) for (const { id } of items) pageById.set(id, index);
  const groups: NumberedTurn[][] = [];
  let key: string | undefined;
  let newer = 0;
  for (const [index, row] of rows.toReversed().entries()) {
    const page = pageById.get(row.id);
    if (page === undefined) newer++;
    const next =
      row.status === 'PENDING'
        ? `running ${row.id}`
        : page === undefined
          ? `newer ${Math.ceil(newer / pageSize)}`
          : `page ${page}`;
    if (next !== key) groups.push([]);
    key = next;
    groups.at(-1)?.push({ row, number: first + index });
  }
  return groups;
}
