/**
 * The executor: claims runs, holds their leases and executes each to its end.
 *
 * Invariant: a running run has one fencing token, which one process holds, and every write of its outcome or state
 * checks the token. So only the holder of the token can end a run.
 *
 *   1. The executor looks for runs on a NOTIFY of Postgres, when the next run is due, when a slot becomes free after
 *      all were used, and each second.
 *   2. It claims the first due run of as many threads as there are free slots, with fair shares between callers. The
 *      slots of a claim are reserved until the worker pool has accepted its runs. Without free slots, the executor uses
 *      the extra slots of the workers for callers below their fair share.
 *   3. It attempts each claimed run (`attempt-run.ts`): the attempt streams the run and then ends or requeues it.
 *   4. It claims runs only while its heartbeat is valid (`leases.ts`). An attempt that loses its lease stops and
 *      requeues the run; an attempt of a cancelled run stops.
 *   5. Each second it requeues runs of processes whose heartbeat has expired, and publishes ends that are missing in
 *      the log.
 *   6. `stop` stops claiming, waits up to `drainMs` for active runs, and requeues the unfinished runs without counting
 *      their attempts as lost.
 */
import { randomUUID } from 'node:crypto';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { startRepeating } from '../../../infra/timeouts/repeat.ts';
import { claimRuns, getMsToNextRun } from '../runs/claim-runs.ts';
import { sweepRuns } from '../runs/delete-run.ts';
import { releaseRun } from '../runs/end-run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import type { StreamPublisher } from '../streams/stream-types.ts';
import type { ChildRunTracer } from '../traces/child-runs.ts';
import type { WorkerPool } from '../workers/front/worker-pool.ts';
import { attemptRun } from './attempt-run.ts';
import { Leases } from './leases.ts';
import { type FeedbackLinkFactory, type MarkEndPublished, publishLateEnds } from './publish-end.ts';
import type { TraceRun } from './trace-run.ts';

export interface ExecutorDeps {
  readonly database: Database;
  readonly pool: WorkerPool;
  readonly publisher: StreamPublisher;
  readonly deploymentId: string;
  /** Writes an ended run as a trace. Idempotent. */
  readonly traceRun: TraceRun;
  readonly childRuns: Pick<ChildRunTracer, 'open'>;
  readonly markEndPublished: MarkEndPublished;
  /** Creates feedback links for runs that request them. If unset, runs cannot request links. */
  readonly feedbackLinks?: FeedbackLinkFactory | undefined;
  readonly logger: Logger;
  /** A dedicated connection for the heartbeat, with a statement timeout below `leaseMs`. */
  readonly heartbeats: Sql;
  readonly leaseMs: number;
  readonly runTimeoutMs: number;
  /** See {@link claimRuns}. */
  readonly revisionId?: string | undefined;
}

export interface Executor {
  /** Looks for runs to claim. Call it after a run was created, ended or cancelled. */
  wake(): void;
  /** Checks the leases at once. Call it after a cancel request for a run that may be active in this process. */
  checkLeases(): void;
  /** Publishes missing ends at once. Call it after a run has ended while no process was executing it. */
  publishMissingEnds(): void;
  /** Number of active attempts of this process. */
  readonly running: number;
  stop(drainMs: number): Promise<void>;
}

const sweepIntervalMs = 1_000;
/** A claim may miss runs that became due less than this time before the claim. */
const dueRecheckDelayMs = 20;
/** Delay before a claim for extra slots, so that runs created while all slots are used share one claim. */
const extraClaimDelayMs = 25;

export function startExecutor(deps: ExecutorDeps): Executor {
  const { database, pool, deploymentId, logger, revisionId } = deps;
  const processId = randomUUID();
  const leases = new Leases({
    ...deps,
    process: { deploymentId, processId },
    requeue: (run) => releaseRun(database, { ...run, deploymentId }, { alone: false, countsAsLost: true }),
    onAlive: () => search.wake(),
  });
  const attempts = new Set<Promise<void>>();
  let isStopping = false;
  let extraTimer: NodeJS.Timeout | undefined;
  let isExtraClaimDue = false;
  /** Number of slots reserved for runs that the worker pool has not accepted yet. */
  let reservedSlots = 0;
  /** Whether all slots were used at the last claim, so that due runs may be waiting. */
  let isFull = false;
  const countFreeSlots = () => (leases.alive ? pool.freeSlots - reservedSlots : 0);
  const countExtraSlots = () => (leases.alive ? Math.max(0, pool.extraSlots + Math.min(0, countFreeSlots())) : 0);

  /** Claims due runs. Returns the milliseconds until the next run is due. */
  async function claimDueRuns(): Promise<number | undefined> {
    const slots = Math.max(0, countFreeSlots());
    isFull = slots === 0;
    const extraSlots = isFull && !isExtraClaimDue ? 0 : countExtraSlots();
    if (isFull && !isExtraClaimDue && countExtraSlots() > 0)
      extraTimer ??= setTimeout(claimExtraRuns, extraClaimDelayMs);
    isExtraClaimDue = false;
    if (slots + extraSlots === 0) return undefined;
    const claimedAtMs = performance.now();
    reservedSlots += slots + extraSlots;
    let claimedRuns: readonly ClaimedRun[] = [];
    try {
      claimedRuns = await claimRuns(database, deploymentId, { slots, extraSlots, processId, revisionId });
    } finally {
      reservedSlots -= slots + extraSlots - claimedRuns.length;
    }
    for (const run of claimedRuns) attempt(run, claimedAtMs);
    if (claimedRuns.length > 0) search.wake();
    if (claimedRuns.length > 0 || isFull) return undefined;
    // `getMsToNextRun` omits runs that are overdue because a request writes to their thread; that request wakes the
    // executor.
    const dueMs = await getMsToNextRun(database, deploymentId, dueRecheckDelayMs);
    return dueMs === undefined || dueMs > 0 ? dueMs : dueRecheckDelayMs;
  }

  function claimExtraRuns(): void {
    extraTimer = undefined;
    isExtraClaimDue = true;
    search.wake();
  }

  /** Starts an attempt of a claimed run. The caller has reserved a slot for it. */
  function attempt(run: ClaimedRun, claimedAtMs: number): void {
    let isReserved = true;
    const endReservation = () => {
      if (isReserved) reservedSlots -= 1;
      isReserved = false;
    };
    const attemptPromise = attemptRun(
      { ...deps, isStopping: () => isStopping, onAccepted: endReservation },
      leases,
      run,
      claimedAtMs,
    )
      .catch((err) => logger.error({ err, runId: run.runId }, 'attempt failed unexpectedly'))
      .finally(() => {
        endReservation();
        attempts.delete(attemptPromise);
        wakeIfFull();
      });
    attempts.add(attemptPromise);
  }

  async function waitForAttempts(): Promise<void> {
    while (attempts.size > 0) await Promise.all(attempts);
  }

  function wakeIfFull(): void {
    if (isFull) search.wake();
  }

  const search = startRepeating(claimDueRuns, {
    maxPauseMs: 60_000,
    onFailure: (err) => logger.warn({ err }, 'runs not claimed; retrying'),
  });
  const sweeps = startRepeating(sweep, {
    maxPauseMs: sweepIntervalMs,
    onFailure: (err) => logger.warn({ err }, 'sweep of runs failed; retrying'),
  });

  async function sweep(): Promise<void> {
    // If one of them fails, the other still has work that it can do.
    await sweepRuns(database, deploymentId)
      .finally(() => publishLateEnds(deps))
      .finally(search.wake);
  }

  pool.onFree(wakeIfFull);

  return {
    wake: search.wake,
    checkLeases: () => leases.renewSoon(),
    publishMissingEnds: sweeps.wake,
    get running() {
      return attempts.size;
    },
    async stop(drainMs) {
      isStopping = true;
      clearTimeout(extraTimer);
      await Promise.all([search.stop(), sweeps.stop()]);
      await Promise.all([pool.close(drainMs), waitForAttempts()]);
      await leases.stop();
    },
  };
}
