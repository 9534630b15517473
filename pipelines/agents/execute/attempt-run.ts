/**
 * One attempt of a run, from its claim to its end.
 *
 * Invariant: what readers see of an attempt is in the log before the run's final state is committed, and that is committed before
 * the end is in the log. So whoever has seen the end reads the final state, and who reads a final state misses no event.
 *
 *   1. The event `metadata` announces the attempt.
 *   2. The graph is run in a worker; its chunks go to the log as they come.
 *   3. A failure is told by an event `error`.
 *   4. All events are in the log, durable where they are kept; if the log did not take them in all that time, the end says so.
 *   5. One transaction writes the final state if the token is still the run's. An attempt that lost its lease, or broke off, requeues
 *      the run; if another process has the run already, that does nothing.
 *   6. The end is published (`publish-end.ts`). A crash between 5 and 6 leaves that to whoever looks over the ends.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { runsEnded } from '../agent-metrics.ts';
import { endRun, type RunResult } from '../runs/end-run.ts';
import { releaseRun } from '../runs/release-run.ts';
import type { ClaimedRun, RunFailure } from '../runs/run-row.ts';
import type { RunOutcome } from '../workers/worker-pool.ts';
import { errorChunk, metadataChunk } from './chunks.ts';
import type { ExecutorPorts } from './executor.ts';
import type { Leases } from './leases.ts';
import { publishEnd } from './publish-end.ts';
import { startOfAttempt } from './start-of-attempt.ts';

const retryMs = 250;

/** Characters of what a graph threw; the trace of the run has all of it, and where it was thrown. */
const longestLogged = 500;

export interface AttemptPorts extends ExecutorPorts {
  /** Whether this process stops. */
  stopping(): boolean;
  /** Called when the run is in the pool of workers. */
  inPool(): void;
}

export async function attemptRun(
  ports: AttemptPorts,
  leases: Leases,
  run: ClaimedRun,
  claimedAtMs: number,
): Promise<void> {
  const { database, pool, publisher, logger, stopping } = ports;
  const { threadStart, baseCheckpointId: _, metadata: __, sender: ___, startedAt: ____, ...job } = run;
  const { deploymentId, threadId, runId, attempt, kwargs } = job;
  const traced = ports.childRuns.open(run);
  const stream = publisher.open({ deploymentId, threadId, runId, attempt, threadStart, kept: kwargs.resumable });
  let cancelled = false;
  let lost = false;
  /** The run has ended or is requeued, as far as this attempt can say. */
  let over = false;
  let cancel = (): void => undefined;
  const letGo = leases.keep(run, claimedAtMs, {
    cancelled: () => {
      cancelled = true;
      cancel();
    },
    lost: () => {
      lost = true;
      cancel();
    },
  });
  /** What the lease guards may be tried for as long as it is held: a database that is away for a moment ends no run. */
  async function whileHeld<Result>(work: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (lost || !isRunlakeError(error) || !error.retryable) throw error;
        await pause(retryMs);
      }
    }
  }
  try {
    await stream.write([metadataChunk(run)]);
    const handle = pool.start(
      {
        ...job,
        start: await whileHeld(() => startOfAttempt(database, run)),
        timeoutMs: ports.runTimeoutMs,
        ...(traced && { trace: traced.order }),
      },
      (chunks) => stream.write(chunks),
      traced?.take,
    );
    ports.inPool();
    cancel = () => handle.cancel();
    if (cancelled || lost) cancel();
    const outcome = await handle.outcome;
    traced?.ended(outcome.kind === 'lost' ? outcome.message : `The run ended: ${outcome.kind}.`);
    if (lost || outcome.kind === 'fenced') {
      logger.warn({ runId, attempt }, 'lease of a run lost: this attempt writes nothing more');
      lost = true;
      return;
    }
    if (outcome.kind === 'lost' && outcome.blame !== 'self') {
      const alone = outcome.blame === 'shared';
      logger.warn({ runId, attempt, reason: outcome.message, alone }, 'a run lost its worker and is started again');
      const countLoss = !alone && !stopping();
      await whileHeld(() => releaseRun(database, run, { alone, countLoss }));
      over = true;
      return;
    }
    const { result, failure } = settle(outcome, cancelled);
    if (failure !== undefined) {
      const { graphId } = job;
      const message = failure.message.slice(0, longestLogged);
      logger.warn({ graph: graphId, runId, threadId, attempt, error: failure.error, message }, 'a run failed');
      await stream.write([errorChunk(failure)]);
    }
    const eventsMissing = await stream.settled().then(
      () => false,
      (err) => {
        logger.error({ err, runId, attempt }, 'events of a run are not in the log: its readers are told');
        return true;
      },
    );
    const ended = await whileHeld(() => endRun(database, run, { ...result, eventsMissing }));
    over = true;
    if (!ended) return;
    runsEnded.inc({ status: ended.status });
    letGo();
    await publishEnd(ports, ended, traced?.marks);
  } finally {
    letGo();
    if (!over) await requeue(ports, run, { countLoss: !lost });
  }
}

/** At once, instead of when `Leases` finds the run without an attempt. Does nothing if another process has the run. */
async function requeue(
  { database, logger }: AttemptPorts,
  run: ClaimedRun,
  { countLoss }: { readonly countLoss: boolean },
) {
  await releaseRun(database, run, { alone: false, countLoss }).catch((err) => {
    logger.warn({ err, runId: run.runId }, 'run of an attempt that broke off not requeued: it is requeued later');
  });
}

/** The result if nothing was asked of the run (`endRun` decides that), and the failure that its readers get. */
function settle(
  outcome: Exclude<RunOutcome, { kind: 'fenced' }>,
  cancelled: boolean,
): { result: RunResult; failure?: RunFailure } {
  const failed = (status: 'error' | 'timeout', failure: RunFailure, values?: string) => ({
    result: { status, error: failure, ...(values !== undefined && { values }) },
    failure,
  });
  switch (outcome.kind) {
    case 'finished': {
      const { values, next, interrupts } = outcome;
      return { result: { status: 'success', values, next, interrupts } };
    }
    case 'cancelled':
      if (cancelled) return { result: { status: 'interrupted' } };
      return failed('error', {
        error: 'RunCancelled',
        message: 'The run was stopped because its events could not be stored.',
      });
    case 'timeout':
      return failed('timeout', {
        error: 'RunTimeout',
        message: 'The run took longer than RUNLAKE_AGENTS_RUN_TIMEOUT_MS.',
      });
    case 'failed':
      return failed('error', { error: outcome.error, message: outcome.message }, outcome.values);
    case 'lost':
      return failed('error', { error: 'WorkerEnded', message: outcome.message });
  }
}
