import type { ThreadState } from '@langchain/langgraph-sdk';
import { Link } from '@tanstack/react-router';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { EmptyState, MoreButton, QueryState } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import { ValueView } from '../../components/values/value-view.tsx';
import { useHistory, useThreadRuns, useThreadState } from './agent-queries.ts';
import { ForkForm } from './fork-form.tsx';
import { StateDifference } from './state-difference.tsx';
import { ThreadStatus } from './status.tsx';
import { useDeploymentSearch } from './use-deployment-search.ts';

/** A thread: its history, the state at a checkpoint, the difference to another one, forks, and its runs. */
export function ThreadView({ threadId }: { readonly threadId: string }) {
  const { search, change } = useDeploymentSearch();
  const canRun = usePermission('agents:run');
  const history = useHistory(threadId);
  const isListed = history.data?.pages.flat().some((each) => getCheckpointId(each) === search.checkpoint) ?? true;
  // A link can name a checkpoint that is older than those in the list.
  const older = useThreadState(search.checkpoint === undefined || isListed ? undefined : threadId, search.checkpoint);
  return (
    <>
      <div className="row wrap agents-filter">
        <Button onClick={() => change({ thread: undefined, checkpoint: undefined, compare: undefined })}>
          All threads
        </Button>
        <h2 className="mono agents-id">{threadId}</h2>
        <span className="spacer" />
        <Button onClick={() => change({ tab: 'Playground', checkpoint: undefined })}>Open in the playground</Button>
      </div>
      <QueryState query={{ ...history, data: history.data?.pages.flat() }}>
        {(states) => {
          const [latest] = states;
          if (latest === undefined)
            return (
              <EmptyState title="This thread has no state yet">
                No graph has run on it. Run one in the playground.
                <Runs threadId={threadId} />
              </EmptyState>
            );
          const shown = states.find((each) => getCheckpointId(each) === search.checkpoint) ?? older.data ?? latest;
          const other = states.find((each) => getCheckpointId(each) === search.compare);
          return (
            <div className="agents-columns">
              <section className="agents-side" aria-label="History">
                <ol className="agents-list">
                  {states.map((state) => (
                    <CheckpointItem
                      key={getCheckpointId(state)}
                      state={state}
                      isShown={state === shown}
                      isCompared={state === other}
                      onShow={() => change({ checkpoint: getCheckpointId(state) }, true)}
                      onCompare={() => change({ compare: state === other ? undefined : getCheckpointId(state) }, true)}
                    />
                  ))}
                </ol>
                <MoreButton pages={history} label="Show older states" />
              </section>
              <div className="agents-detail stack">
                {other && other !== shown && <StateDifference before={other} after={shown} />}
                <ValueView key={getCheckpointId(shown)} title="State" value={shown.values} />
                <Tasks state={shown} />
                {canRun && (
                  <ForkForm
                    key={`fork ${getCheckpointId(shown)}`}
                    threadId={threadId}
                    state={shown}
                    isLatest={shown === latest}
                  />
                )}
                <ValueView key={`metadata ${getCheckpointId(shown)}`} title="Metadata" value={shown.metadata} />
                <Runs threadId={threadId} />
              </div>
            </div>
          );
        }}
      </QueryState>
    </>
  );
}

const getCheckpointId = ({ checkpoint }: ThreadState) => checkpoint?.checkpoint_id ?? '';

function CheckpointItem({
  state,
  isShown,
  isCompared,
  onShow,
  onCompare,
}: {
  readonly state: ThreadState;
  readonly isShown: boolean;
  readonly isCompared: boolean;
  readonly onShow: () => void;
  readonly onCompare: () => void;
}) {
  const { step, source } = (state.metadata ?? {}) as { readonly step?: number; readonly source?: string };
  const label = `step ${step ?? '–'}`;
  return (
    <li className={isShown ? 'selected' : ''}>
      <button type="button" className="agents-item" aria-pressed={isShown} onClick={onShow}>
        <span className="row">
          <span>{label}</span>
          {source !== undefined && <span className="badge">{source}</span>}
          <span className="spacer" />
          <Time at={state.created_at} />
        </span>
        <span className="muted agents-text">
          {state.next.length === 0 ? 'end' : <Value text={`next: ${state.next.join(', ')}`} />}
        </span>
      </button>
      <button
        type="button"
        className="chip"
        aria-pressed={isCompared}
        aria-label={`Compare with ${label}`}
        disabled={isShown}
        onClick={onCompare}
      >
        Compare
      </button>
    </li>
  );
}

/** Tasks of the state that failed or that wait for an answer. */
function Tasks({ state: { tasks } }: { readonly state: ThreadState }) {
  const open = tasks.filter(({ error, interrupts }) => error || (interrupts ?? []).length > 0);
  if (open.length === 0) return null;
  return (
    <section aria-label="Tasks" className="stack">
      {open.map(({ id, name, error, interrupts }) => (
        <ValueView
          key={id}
          title={`${name} ${error ? 'failed' : 'waits for an answer'}`}
          value={error ?? interrupts.map(({ value }) => value)}
        />
      ))}
    </section>
  );
}

function Runs({ threadId }: { readonly threadId: string }) {
  const canReadRuns = usePermission('runs:read');
  const runs = useThreadRuns(threadId);
  return (
    <section aria-label="Runs" className="stack">
      <h2>Runs</h2>
      <QueryState query={runs}>
        {(found) =>
          found.length === 0 ? (
            <p className="muted">None</p>
          ) : (
            <ul className="agents-runs">
              {found.map(({ run_id, status, created_at }) => (
                <li key={run_id} className="row wrap">
                  <ThreadStatus status={status} /> <Time at={created_at} />
                  <code className="agents-id muted">{run_id}</code>
                  {canReadRuns && (
                    <Link to="/runs/$runId" params={{ runId: run_id }} aria-label={`Trace of the run ${run_id}`}>
                      Trace
                    </Link>
                  )}
                </li>
              ))}
            </ul>
          )
        }
      </QueryState>
    </section>
  );
}
