/**
 * One attempt of a run, from the claim to the end.
 *
 * Invariant: all events of an attempt are in the log before the final state is committed, unless the end event reports
 * missing events; the final state is committed before the end event is in the log. So a client that has seen the end
 * reads the final state, and a client that reads the final state misses no event.
 *
 *   1. Publish the event `metadata`, which announces the attempt, and `input.answered` if the run answers interrupts by id.
 *   2. Execute the graph in a worker; publish its chunks as they arrive.
 *   3. After a failure, publish an event `error`.
 *   4. Wait until all events are in the log, and durable if the stream is resumable. If the log did not accept them,
 *      the end event reports missing events.
 *   5. Write the final state in one transaction, if the run still has the fencing token of this attempt. An attempt
 *      that has lost its lease or has thrown an error requeues the run; this has no effect if another process already
 *      owns the run.
 *   6. Publish the end (`publish-end.ts`). After a crash between steps 5 and 6, the sweep of any process publishes the
 *      end.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { isTransient } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/pool.ts';
import { runsEnded } from '../agent-metrics.ts';
import { buildThreadKey } from '../checkpoints/copy-checkpoints.ts';
import { findHeadRun } from '../checkpoints/stored-tuples.ts';
import { countStoredNodes, endRun, type RunResult, releaseRun } from '../runs/end-run.ts';
import { type CancelAction, listAnsweredInterrupts } from '../runs/run.ts';
import type { ClaimedRun, RunFailure } from '../runs/run-row.ts';
import { answerEvent, protocolMode, toStreamStart } from '../streams/stream-types.ts';
import { readNewestState } from '../threads/newest-state.ts';
import type { ChildRunTracer } from '../traces/child-runs.ts';
import type { WorkerPool } from '../workers/front/worker-pool.ts';
import type { Chunk, RunJob, RunOutcome } from '../workers/messages.ts';
import type { Leases } from './leases.ts';
import { type PublishEndDeps, publishEnd } from './publish-end.ts';

/** Creates the first events of an attempt: its announcement, and the interrupts that the run answers by id. */
function createFirstChunks(run: ClaimedRun): Chunk[] {
  const ids = listAnsweredInterrupts(run.kwargs.command?.resume);
  const answer = { ...createChunk(answerEvent, { data: { interrupt_ids: ids } }), mode: protocolMode };
  return [createMetadataChunk(run), ...(ids.length > 0 ? [answer] : [])];
}

/**
 * Creates the first event of each attempt. Newer SDKs read `thread_id`. The event of a temporary run omits it, because
 * its thread is not shown to clients.
 */
function createMetadataChunk({ runId, threadId, graphId, attempt, kwargs }: ClaimedRun): Chunk {
  return createChunk('metadata', {
    run_id: runId,
    attempt,
    graph_id: graphId,
    ...(!kwargs.temporary && { thread_id: threadId }),
  });
}

function createChunk(name: string, value: object): Chunk {
  return { mode: name, event: name, namespace: '', data: Buffer.from(JSON.stringify(value)) };
}

/**
 * Decides where an attempt starts. The first attempt passes the input of the request. A later attempt continues from
 * the head of the thread only if this run wrote that checkpoint. Otherwise the run has stored nothing, and the attempt
 * starts where the first attempt started: continuing from the head that another run wrote would silently return the
 * state of that run.
 */
async function chooseAttemptStart(database: Sql, run: ClaimedRun): Promise<RunJob['start']> {
  const { checkpoint, durability } = run.kwargs;
  if (run.attempt > 1 && durability !== 'exit') {
    const headRunId = await findHeadRun(database, buildThreadKey(run.deploymentId, run.threadId));
    if (headRunId === run.runId) return { kind: 'continue' };
  }
  if (checkpoint !== undefined) return { kind: 'input', checkpoint };
  // The claim found no checkpoint, so the worker need not look for one.
  if (run.baseCheckpointId === undefined) return { kind: 'input', checkpoint: 'none' };
  return run.attempt === 1 ? { kind: 'input' } : { kind: 'input', checkpoint: { checkpoint_id: run.baseCheckpointId } };
}

/** Returns the fields of a run that its worker gets. */
function toJob({
  threadStart: _start,
  baseCheckpointId: _base,
  metadata: _metadata,
  sender: _sender,
  startedAt: _startedAt,
  ...job
}: ClaimedRun): Omit<RunJob, 'start' | 'timeoutMs'> {
  return job;
}

const retryPauseMs = 250;

/** Maximum logged characters of a graph's error message; the trace of the run has the full message and the stack. */
const maxLoggedCharacters = 500;

/** Services that every attempt uses. */
export interface AttemptDeps extends PublishEndDeps {
  readonly pool: WorkerPool;
  readonly childRuns: Pick<ChildRunTracer, 'open'>;
  readonly runTimeoutMs: number;
}

/** What the executor tells and hears of one attempt. */
interface AttemptCallbacks {
  /** Returns true if this process is shutting down. */
  isStopping(): boolean;
  /** Called when the worker pool has accepted the run. */
  onAccepted(): void;
}

export async function attemptRun(
  deps: AttemptDeps & AttemptCallbacks,
  leases: Leases,
  run: ClaimedRun,
  claimedAtMs: number,
): Promise<void> {
  const { database, pool, publisher, logger, isStopping } = deps;
  const { threadId, runId, attempt } = run;
  const tracedAttempt = deps.childRuns.open(run);
  const stream = publisher.open(toStreamStart(run));
  let cancelAction: CancelAction | undefined;
  let hasLostLease = false;
  /** Whether this attempt has ended or requeued the run. */
  let hasEnded = false;
  let cancel = (): void => undefined;
  const releaseLease = leases.keep(run, claimedAtMs, {
    onCancelled: (action) => {
      cancelAction = action;
      cancel();
    },
    onLost: () => {
      hasLostLease = true;
      cancel();
    },
  });
  /**
   * Retries `work` after retryable errors while the lease is held, so that a short outage of the database does not end
   * the run.
   */
  async function retryWhileLeased<Result>(work: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (hasLostLease || !isTransient(error)) throw error;
        await pause(retryPauseMs);
      }
    }
  }
  try {
    await stream.write(createFirstChunks(run));
    // Nodes whose results earlier attempts have stored are not executed again.
    const earlierNodes = attempt > 1 ? await retryWhileLeased(() => countStoredNodes(database, run)) : 0;
    const handle = pool.start(
      {
        ...toJob(run),
        start: await retryWhileLeased(() => chooseAttemptStart(database, run)),
        timeoutMs: deps.runTimeoutMs,
        ...(tracedAttempt && { trace: tracedAttempt.order }),
      },
      (chunks) => stream.write(chunks),
      tracedAttempt && ((batch) => tracedAttempt.take(batch)),
    );
    deps.onAccepted();
    cancel = () => handle.cancel();
    if (cancelAction !== undefined || hasLostLease) cancel();
    const outcome = await handle.outcome;
    tracedAttempt?.ended(outcome.kind === 'lost' ? outcome.message : `The run ended: ${outcome.kind}.`);
    // If the lease of a fenced attempt is still valid, `requeue` counts the attempt as lost, so that a graph that is always
    // fenced does not run forever.
    if (hasLostLease || outcome.kind === 'fenced') {
      logger.warn({ runId, attempt }, 'run lost its lease; attempt stopped');
      return;
    }
    if (outcome.kind === 'lost' && outcome.cause !== 'worker') {
      const mustRunAlone = outcome.cause === 'shared-worker';
      logger.warn({ runId, attempt, reason: outcome.message, alone: mustRunAlone }, 'run lost its worker; requeued');
      const countsAsLost = !mustRunAlone && !isStopping();
      await retryWhileLeased(() => releaseRun(database, run, { alone: mustRunAlone, countsAsLost }));
      hasEnded = true;
      return;
    }
    // A rollback removes the state that the run has stored.
    const finalOutcome = cancelAction === 'rollback' ? outcome : await addNewestState(deps, run, outcome);
    const { result, failure } = toResult(finalOutcome, cancelAction !== undefined);
    if (failure !== undefined) {
      const { graphId } = run;
      const message = failure.message.slice(0, maxLoggedCharacters);
      logger.warn({ graph: graphId, runId, threadId, attempt, error: failure.error, message }, 'run failed');
      await stream.write([createChunk('error', failure)]);
    }
    const eventsMissing = await stream.settled().then(
      () => false,
      (err) => {
        logger.error({ err, runId, attempt }, 'events of a run are not in the log; the end event reports it');
        return true;
      },
    );
    const nodes = handle.nodes === undefined ? undefined : earlierNodes + handle.nodes;
    const ended = await retryWhileLeased(() => endRun(database, run, { ...result, eventsMissing, nodes }));
    hasEnded = true;
    if (!ended) return;
    runsEnded.inc({ status: ended.status });
    releaseLease();
    await publishEnd(deps, ended, tracedAttempt?.marks);
  } finally {
    releaseLease();
    if (!hasEnded) await requeue(deps, run, { countsAsLost: !hasLostLease });
  }
}

/**
 * Requeues the run at once; otherwise it would wait until `Leases` finds it without an attempt. Does nothing if another
 * process owns the run.
 */
async function requeue(
  { database, logger }: AttemptDeps,
  run: ClaimedRun,
  { countsAsLost }: { readonly countsAsLost: boolean },
) {
  await releaseRun(database, run, { alone: false, countsAsLost }).catch((err) => {
    logger.warn(
      { err, runId: run.runId },
      'run not requeued after its attempt threw; the lease check requeues it later',
    );
  });
}

type EndingOutcome = Exclude<RunOutcome, { kind: 'fenced' }>;

/**
 * Adds the stored state to the outcome of a run whose worker did not report it, so that the row of the thread has the
 * state that later requests read. No request reads that of a temporary run.
 */
async function addNewestState(
  { pool }: AttemptDeps,
  { deploymentId, threadId, graphId, kwargs }: ClaimedRun,
  outcome: EndingOutcome,
): Promise<EndingOutcome> {
  const isReported = outcome.kind === 'finished' || outcome.kind === 'failed' || 'values' in outcome;
  if (isReported || kwargs.temporary) return outcome;
  const state = await readNewestState(pool, { deploymentId, threadId, graphId, config: kwargs.config });
  return state === undefined ? outcome : { ...outcome, values: state.values, interrupts: state.interrupts };
}

/**
 * Converts an outcome to the result of the run and to the failure that its readers receive. `endRun` applies a
 * requested cancel or rollback.
 */
function toResult(outcome: EndingOutcome, cancelled: boolean): { result: RunResult; failure?: RunFailure } {
  // The thread gets values and interrupts of the same snapshot, or keeps both.
  const toState = ({ values, interrupts }: Pick<RunResult, 'values' | 'interrupts'>) =>
    values === undefined ? {} : { values, interrupts: interrupts ?? {} };
  const failed = (status: 'error' | 'timeout', failure: RunFailure) => ({
    result: { status, error: failure, ...('values' in outcome && toState(outcome)) },
    failure,
  });
  switch (outcome.kind) {
    case 'finished': {
      const { values, next, interrupts } = outcome;
      return { result: { status: 'success', values, next, interrupts } };
    }
    case 'cancelled':
      if (cancelled) return { result: { status: 'interrupted', ...toState(outcome) } };
      return failed('error', {
        error: 'RunCancelled',
        message: 'The run was cancelled because its events could not be stored.',
      });
    case 'timeout':
      return failed('timeout', {
        error: 'RunTimeout',
        message: 'The run took longer than RUNLAKE_AGENTS_RUN_TIMEOUT_MS.',
      });
    case 'failed':
      return failed('error', { error: outcome.error, message: outcome.message });
    case 'lost':
      return failed('error', { error: 'WorkerEnded', message: outcome.message });
  }
}
