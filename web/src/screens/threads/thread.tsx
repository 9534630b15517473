import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { lazy, type ReactNode, Suspense, useMemo, useRef, useState } from 'react';
import { call } from '../../api/client.ts';
import { Crumb, CrumbSeparator } from '../../components/crumb.tsx';
import { formatCompact, formatCost, formatCount, formatSeconds } from '../../components/format.ts';
import { Status } from '../../components/run-marks.tsx';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, ErrorState, LoadingState, MoreButton } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { LongText } from '../../components/values/json-tree.tsx';
import { type Run, useFullRun, workspaceSource } from '../trace/trace-source.ts';
import '../trace/trace.css';
import { Conversation, ValueView } from '../../components/values/value-view.tsx';
import { describeFeedback } from '../traces/columns.tsx';
import { Figures, useProject } from '../traces/project-head.tsx';
import { type RunRow, useRunPages } from '../traces/use-runs.ts';
import { buildThreadFilter } from './search.ts';
import './threads.css';
import { readTurn } from './turn-messages.ts';

const Feedback = lazy(() => import('../trace/feedback.tsx').then(({ Feedback }) => ({ default: Feedback })));
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
  const { data } = useSummary(projectId, threadId);
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
        <h1>
          <Value text={threadId} />
        </h1>
      </header>
      <Figures
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
  const navigate = useNavigate();
  const list = useRef<HTMLOListElement>(null);
  const summary = useSummary(projectId, threadId);
  const { pages, rows, liveError } = useRunPages({
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
  const first = Math.max(summary.data?.count ?? 0, rows.length) - rows.length + 1;
  return (
    <>
      {liveError && (
        <p className="thread-notice error-text" role="alert">
          Not up to date: {liveError.message}
        </p>
      )}
      <section className="thread-scroll" aria-label="Conversation" tabIndex={0}>
        <div>
          <MoreButton pages={pages} label="Show earlier turns" />
          <ol className="turns" ref={list}>
            {rows.toReversed().map((row, index) => (
              <li
                key={row.id}
                className="turn"
                tabIndex={-1}
                aria-label={`Turn ${first + index}`}
                onKeyDown={({ key, target, currentTarget }) => {
                  if (key === 'Enter' && target === currentTarget)
                    void navigate({ to: '/runs/$runId', params: { runId: row.id ?? '' } });
                }}
              >
                <TurnView row={row} number={first + index} />
              </li>
            ))}
          </ol>
        </div>
      </section>
    </>
  );
}

function TurnView({ row, number }: { readonly row: RunRow; readonly number: number }) {
  const { id = '', name = '', status, start_time, latency_seconds, total_tokens, total_cost, feedback_stats } = row;
  const { data, error, refetch } = useFullRun(workspaceSource, id);
  const [showsFeedback, setShowsFeedback] = useState(false);
  const feedback = describeFeedback(feedback_stats);
  return (
    <>
      <header className="row wrap turn-head">
        <h2>Turn {formatCount(number)}</h2>
        <Status status={status} />
        <Time at={start_time} />
        <span className="muted">{formatSeconds(latency_seconds)}</span>
        {Boolean(total_tokens) && <span className="muted">{formatCompact(total_tokens)} tokens</span>}
        {total_cost !== null && total_cost !== undefined && <span className="muted">{formatCost(total_cost)}</span>}
        <span className="spacer" />
        <button
          type="button"
          className="chip"
          aria-expanded={showsFeedback}
          disabled={data === undefined}
          onClick={() => setShowsFeedback(!showsFeedback)}
        >
          Feedback
          {feedback !== '' && (
            <>
              : <Value text={feedback} />
            </>
          )}
        </button>
        <Link to="/runs/$runId" params={{ runId: id }} className="chip">
          Trace: <Value text={name || '(no name)'} />
        </Link>
      </header>
      {data ? (
        <TurnBody run={data.run} />
      ) : error ? (
        <ErrorState error={error} onRetry={() => void refetch()} />
      ) : (
        <LoadingState label="Loading the turn" />
      )}
      {showsFeedback && data && (
        <section aria-label={`Feedback on turn ${number}`}>
          <Suspense fallback={<LoadingState />}>
            <Feedback run={data.run} />
          </Suspense>
        </section>
      )}
    </>
  );
}

function TurnBody({ run }: { readonly run: Run }) {
  const { inputs, outputs, error, end_time } = run;
  const [showsEarlier, setShowsEarlier] = useState(false);
  const turn = useMemo(() => readTurn(inputs, outputs), [inputs, outputs]);
  const { earlier, input = [], output } = turn;
  let end: ReactNode = null;
  if (error)
    end = (
      <section className="run-error" aria-label="Error">
        <h3>Error</h3>
        <pre>
          <LongText text={error} maxLength={5000} />
        </pre>
      </section>
    );
  else if (!end_time) end = <p className="muted">The turn has not ended.</p>;
  return (
    <div className="stack">
      {earlier.length > 0 && (
        <button
          type="button"
          className="chip turn-earlier"
          aria-expanded={showsEarlier}
          onClick={() => setShowsEarlier(!showsEarlier)}
        >
          {showsEarlier ? 'Hide' : 'Show'} {earlier.length} earlier {earlier.length === 1 ? 'message' : 'messages'}
        </button>
      )}
      {turn.input ? (
        <Conversation messages={showsEarlier ? [...earlier, ...input] : input} />
      ) : (
        <ValueView title="Input" value={inputs} />
      )}
      {output ? (
        <Conversation messages={output} />
      ) : outputs === null || outputs === undefined || JSON.stringify(outputs) === '{}' ? null : (
        <ValueView title="Output" value={outputs} />
      )}
      {end}
    </div>
  );
}
