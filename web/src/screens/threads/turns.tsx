import { useQuery, useQueryClient } from '@tanstack/react-query';
import { Link, useNavigate } from '@tanstack/react-router';
import { lazy, type ReactNode, Suspense, useMemo, useState } from 'react';
import { type Answer, callText } from '../../api/client.ts';
import { formatCompact, formatCost, formatCount, formatSeconds } from '../../components/format.ts';
import { Status } from '../../components/run-marks.tsx';
import { ErrorState, LoadingState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { parseToShow } from '../../components/values/exact-json.ts';
import { LongText } from '../../components/values/json-tree.tsx';
import { Conversation, ValueView } from '../../components/values/value-view.tsx';
import { describeFeedback } from '../traces/columns.tsx';
import type { RunRow } from '../traces/use-runs.ts';
import { readTurn } from './turn-messages.ts';

const Feedback = lazy(() => import('../trace/feedback.tsx').then(({ Feedback }) => ({ default: Feedback })));
const livePollMs = 2000;
/** Values can have megabytes: they are kept for a shorter time than other data after they were shown. */
const keptMs = 60_000;

type RunPage = Answer<'post', '/api/v2/runs/query'>;
type TurnValues = Pick<RunPage['items'][number], 'id' | 'inputs' | 'outputs' | 'error'>;

/** A turn, and its number in the thread. */
export interface NumberedTurn {
  readonly row: RunRow;
  readonly number: number;
}

/** Reads the values of turns in one request, or in more if they exceed the size of a page of the API. */
function useTurnValues(projectId: string, turns: readonly NumberedTurn[]) {
  const client = useQueryClient();
  const ids = turns.map(({ row }) => row.id ?? '');
  const key = ids.join();
  // A turn that has ended becomes a part of another group; meanwhile, it stays as it was.
  const known = useMemo(() => {
    const wanted = new Set(key.split(','));
    const groups = client.getQueriesData<ReadonlyMap<string, TurnValues>>({ queryKey: ['turns', projectId] });
    return new Map(groups.flatMap(([, values]) => [...(values ?? [])]).filter(([id]) => wanted.has(id)));
  }, [client, projectId, key]);
  return useQuery<ReadonlyMap<string, TurnValues>>({
    queryKey: ['turns', projectId, ids],
    queryFn: async ({ signal }) => {
      const values = new Map<string, TurnValues>();
      let cursor: string | null = null;
      do {
        const text = await callText('post', '/api/v2/runs/query', {
          body: {
            project_ids: [projectId],
            ids,
            min_start_time: '1970-01-01T00:00:00Z',
            selects: ['ID', 'INPUTS', 'OUTPUTS', 'ERROR'],
            page_size: ids.length,
            cursor,
          },
          signal,
        });
        const page = parseToShow(text) as RunPage;
        for (const item of page.items) values.set(item.id ?? '', item);
        cursor = page.next_cursor;
      } while (cursor !== null);
      return values;
    },
    placeholderData: known,
    gcTime: keptMs,
    staleTime: Number.POSITIVE_INFINITY,
    refetchInterval: turns.some(({ row }) => row.status === 'PENDING') ? livePollMs : false,
  });
}

/** Turns whose values are read together. */
export function Turns({ projectId, turns }: { readonly projectId: string; readonly turns: readonly NumberedTurn[] }) {
  const navigate = useNavigate();
  const { data, error, refetch } = useTurnValues(projectId, turns);
  return turns.map(({ row, number }, index) => {
    const id = row.id ?? '';
    const values = data?.get(id);
    let content: ReactNode;
    if (values) content = <TurnBody values={values} isPending={row.status === 'PENDING'} />;
    else if (!error) content = <LoadingState label="Loading the turn" />;
    else if (index === 0) content = <ErrorState error={error} onRetry={() => void refetch()} />;
    else content = <p className="muted">This turn did not load.</p>;
    return (
      <li
        key={id}
        className="turn"
        tabIndex={-1}
        aria-label={`Turn ${number}`}
        onKeyDown={({ key, target, currentTarget }) => {
          if (key === 'Enter' && target === currentTarget) void navigate({ to: '/runs/$runId', params: { runId: id } });
        }}
      >
        <TurnView projectId={projectId} row={row} number={number}>
          {content}
        </TurnView>
      </li>
    );
  });
}

function TurnView({
  projectId,
  row,
  number,
  children,
}: NumberedTurn & { readonly projectId: string; readonly children: ReactNode }) {
  const { id = '', name = '', status, start_time, latency_seconds, total_tokens, total_cost, feedback_stats } = row;
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
      {children}
      {showsFeedback && (
        <section aria-label={`Feedback on turn ${number}`}>
          <Suspense fallback={<LoadingState />}>
            <Feedback run={{ id, trace_id: id, session_id: projectId }} />
          </Suspense>
        </section>
      )}
    </>
  );
}

function TurnBody({ values, isPending }: { readonly values: TurnValues; readonly isPending: boolean }) {
  const { inputs, outputs, error } = values;
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
  else if (isPending) end = <p className="muted">The turn has not ended.</p>;
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
