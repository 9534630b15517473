import type { Thread } from '@langchain/langgraph-sdk';
import { useQueryClient } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { memo, useEffect, useMemo, useState } from 'react';
import { usePermission } from '../../api/session.ts';
import { Button } from '../../components/button.tsx';
import { Select } from '../../components/select.tsx';
import { EmptyState, Problem, QueryState } from '../../components/states.tsx';
import { showInvisible } from '../../components/text.tsx';
import { JsonTree } from '../../components/values/json-tree.tsx';
import { ValueView } from '../../components/values/value-view.tsx';
import { useAgentClient } from './agent-client.ts';
import { useAssistantOfThread, useAssistants, useThreadRuns, useThreadState } from './agent-queries.ts';
import { idleRun, type RunView, type Step, withPartialMessages } from './graph-run.ts';
import { Interrupts } from './interrupts.tsx';
import { RunInput } from './run-input.tsx';
import { useDeploymentSearch } from './use-deployment-search.ts';
import { useGraphRun } from './use-graph-run.ts';

/** Runs an assistant on a thread and shows its stream. */
export function Playground() {
  const assistants = useAssistants();
  return (
    <QueryState query={{ ...assistants, data: assistants.data?.pages.flat() }}>
      {(found) =>
        found.length === 0 ? (
          <EmptyState title="This deployment has no assistants">Each graph of its langgraph.json has one.</EmptyState>
        ) : (
          <Run
            assistants={found.map(({ assistant_id, name, graph_id }) => ({
              id: assistant_id,
              label: name === graph_id ? name : `${name} (${graph_id})`,
            }))}
          />
        )
      }
    </QueryState>
  );
}

function Run({ assistants }: { readonly assistants: readonly { readonly id: string; readonly label: string }[] }) {
  const client = useAgentClient();
  const queries = useQueryClient();
  const canRun = usePermission('agents:run');
  const { search, change } = useDeploymentSearch();
  const { thread, checkpoint } = search;
  const lastUsed = useAssistantOfThread(thread);
  const assistantId = (
    assistants.find(({ id }) => id === search.assistant) ??
    assistants.find(({ id }) => id === lastUsed) ??
    assistants[0]
  )?.id;
  const refresh = () => queries.invalidateQueries({ queryKey: [...client.key, 'thread'] });
  const { view: latest, start, join, cancel, reset } = useGraphRun(refresh);
  // The address may name another thread than that of the run, for example after back.
  const isOther = latest.threadId !== undefined && latest.threadId !== thread;
  const view = isOther ? idleRun : latest;
  const state = useThreadState(thread, checkpoint);
  const [problem, setProblem] = useState<string>();
  const [isStarting, setStarting] = useState(false);
  const [begunRuns, setBegunRuns] = useState(0);
  const isRunning = isStarting || view.phase === 'running' || view.phase === 'reconnecting';
  useJoin(thread, view, join);

  const attempt = async (work: () => Promise<unknown>) => {
    setProblem(undefined);
    await work().catch((error: unknown) => setProblem(error instanceof Error ? error.message : String(error)));
  };
  const findThread = async () => thread ?? (await client.request<Thread>('post', '/threads', { body: {} })).thread_id;
  const run = async (body: object) => {
    let hasBegun = false;
    await attempt(async () => {
      setStarting(true);
      const threadId = await findThread().finally(() => setStarting(false));
      if (thread === undefined || checkpoint !== undefined) change({ thread: threadId, checkpoint: undefined }, true);
      const from = checkpoint && { checkpoint_id: checkpoint };
      hasBegun = await start(threadId, { assistant_id: assistantId, ...from, ...body });
    });
    if (hasBegun) setBegunRuns((count) => count + 1);
    return hasBegun;
  };
  const shown = withPartialMessages(view, thread === undefined ? undefined : state.data?.values);
  return (
    <div className="agents-columns">
      <section className="agents-side agents-form stack" aria-label="Run">
        <label className="field">
          Assistant
          <Select
            value={assistantId}
            onChange={(assistant) => change({ assistant }, true)}
            options={assistants.map(({ id, label }) => [id, label])}
          />
        </label>
        <div className="field">
          <span>Thread</span>
          <div className="row wrap">
            <code className="agents-id">{thread ?? 'new'}</code>
            {thread !== undefined && (
              <>
                <Button
                  onClick={() => {
                    reset();
                    change({ thread: undefined, checkpoint: undefined });
                  }}
                >
                  New thread
                </Button>
                <Button onClick={() => change({ tab: 'Threads', checkpoint: undefined })}>History</Button>
              </>
            )}
          </div>
        </div>
        {checkpoint !== undefined && (
          <p className="row wrap">
            The next run forks the thread at <code className="agents-id">{checkpoint}</code>
            <Button onClick={() => change({ checkpoint: undefined }, true)}>Use the latest state</Button>
          </p>
        )}
        {canRun ? (
          <RunInput
            key={assistantId}
            assistantId={assistantId}
            isRunning={isRunning}
            canContinue={(state.data?.next.length ?? 0) > 0 || checkpoint !== undefined}
            onRun={run}
          />
        ) : (
          <p className="muted">
            Your key does not have the permission <code>agents:run</code>.
          </p>
        )}
        <Problem message={problem} />
        {isRunning && view.runId !== undefined && thread !== undefined && (
          <Button kind="danger" onClick={() => void attempt(() => cancel(thread, String(view.runId)))}>
            Cancel the run
          </Button>
        )}
      </section>
      <div className="agents-detail stack">
        <RunStatus view={view} />
        {state.data && (
          <Interrupts
            // Later questions of a node have the id of the first one, and must not begin with its answer.
            key={begunRuns}
            state={state.data}
            isHidden={isRunning}
            onAnswer={canRun ? (resume) => void run({ command: { resume } }) : undefined}
          />
        )}
        {state.error && thread !== undefined && <Problem message={state.error.message} />}
        {shown === undefined || (thread === undefined && view.phase === 'idle') ? (
          <p className="muted">The state of the thread appears here.</p>
        ) : (
          <ValueView title="State" value={shown} />
        )}
        {view.steps.length > 0 && (
          <section aria-label="Steps" className="stack">
            <h2>Steps</h2>
            <ol className="agents-steps">
              {view.steps.map((step) => (
                <StepItem key={step.place} step={step} />
              ))}
            </ol>
          </section>
        )}
      </div>
    </div>
  );
}

/** Not rendered again while tokens arrive. */
const StepItem = memo(({ step: { name, value } }: { readonly step: Step }) => (
  <li>
    <code>{showInvisible(name)}</code>
    <JsonTree value={value} level={1} />
  </li>
));

/** Joins the run that is active on the thread when the screen opens, for example after a reload. */
function useJoin(thread: string | undefined, { phase }: RunView, join: (threadId: string, runId: string) => void) {
  const runs = useThreadRuns(phase === 'idle' ? thread : undefined);
  const active = useMemo(
    () => runs.data?.find(({ status }) => status === 'running' || status === 'pending')?.run_id,
    [runs.data],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: `join` changes with each rendering.
  useEffect(() => {
    if (phase === 'idle' && thread !== undefined && active !== undefined) join(thread, active);
  }, [phase, thread, active]);
}

const phases = {
  idle: '',
  running: 'The graph runs',
  reconnecting: 'The connection broke; reconnecting',
  ended: 'The run has ended',
} as const;

function RunStatus({ view: { phase, runId, error } }: { readonly view: RunView }) {
  const canReadRuns = usePermission('runs:read');
  return (
    <div className="row wrap agents-run">
      <span role="status" className={phase === 'running' ? 'live-text' : 'muted'}>
        {phases[phase]}
      </span>
      {runId !== undefined && canReadRuns && (
        <Link to="/runs/$runId" params={{ runId }}>
          Trace
        </Link>
      )}
      <Problem message={error === undefined ? undefined : showInvisible(error)} />
    </div>
  );
}
