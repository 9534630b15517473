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
import type { Sql } from '../../../infra/postgres/pool.ts';
import { type Repeater, startRepeating } from '../../../infra/timeouts/repeat.ts';
import { claimRuns, getMsToNextRun } from '../runs/claim-runs.ts';
import { sweepRuns } from '../runs/delete-run.ts';
import { releaseRun } from '../runs/end-run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import { type AttemptDeps, attemptRun } from './attempt-run.ts';
import { Leases } from './leases.ts';
import { publishLateEnds } from './publish-end.ts';

export interface ExecutorDeps extends AttemptDeps {
  /** A dedicated connection for the heartbeat, with a statement timeout below `leaseMs`. */
  readonly heartbeats: Sql;
  readonly leaseMs: number;
  /** See {@link claimRuns}. */
  readonly revisionId?: string | undefined;
}

const sweepIntervalMs = 1_000;
/** A claim may miss runs that became due less than this time before the claim. */
const dueRecheckDelayMs = 20;
/** Delay before a claim for extra slots, so that runs created while all slots are used share one claim. */
const extraClaimDelayMs = 25;

export class Executor {
  readonly #deps: ExecutorDeps;
  readonly #processId = randomUUID();
  readonly #leases: Leases;
  readonly #attempts = new Set<Promise<void>>();
  readonly #search: Repeater;
  readonly #sweeps: Repeater;
  #isStopping = false;
  #extraTimer: NodeJS.Timeout | undefined;
  #isExtraClaimDue = false;
  /** Number of slots reserved for runs that the worker pool has not accepted yet. */
  #reservedSlots = 0;
  /** Whether all slots were used at the last claim, so that due runs may be waiting. */
  #isFull = false;

  constructor(deps: ExecutorDeps) {
    const { database, pool, deploymentId, logger } = deps;
    this.#deps = deps;
    this.#leases = new Leases({
      ...deps,
      process: { deploymentId, processId: this.#processId },
      requeue: (run) => releaseRun(database, { ...run, deploymentId }, { alone: false, countsAsLost: true }),
      onAlive: () => this.#search.wake(),
    });
    this.#search = startRepeating(() => this.#claimDueRuns(), {
      maxPauseMs: 60_000,
      onFailure: (err) => logger.warn({ err }, 'runs not claimed; retrying'),
    });
    this.#sweeps = startRepeating(() => this.#sweep(), {
      maxPauseMs: sweepIntervalMs,
      onFailure: (err) => logger.warn({ err }, 'sweep of runs failed; retrying'),
    });
    pool.onFree(() => this.#wakeIfFull());
  }

  /** Number of active attempts of this process. */
  get running(): number {
    return this.#attempts.size;
  }

  /** Looks for runs to claim. Call it after a run was created, ended or cancelled. */
  wake(): void {
    this.#search.wake();
  }

  /** Checks the leases at once. Call it after a cancel request for a run that may be active in this process. */
  checkLeases(): void {
    this.#leases.renewSoon();
  }

  /** Publishes missing ends at once. Call it after a run has ended while no process was executing it. */
  publishMissingEnds(): void {
    this.#sweeps.wake();
  }

  async stop(drainMs: number): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#extraTimer);
    await Promise.all([this.#search.stop(), this.#sweeps.stop()]);
    await Promise.all([this.#deps.pool.close(drainMs), this.#waitForAttempts()]);
    await this.#leases.stop();
  }

  /** Claims due runs. Returns the milliseconds until the next run is due. */
  async #claimDueRuns(): Promise<number | undefined> {
    const { database, deploymentId, revisionId } = this.#deps;
    const { slots, extraSlots } = this.#chooseSlots();
    if (slots + extraSlots === 0) return undefined;
    const claimedAtMs = performance.now();
    this.#reservedSlots += slots + extraSlots;
    let claimedRuns: readonly ClaimedRun[] = [];
    try {
      const claim = { slots, extraSlots, processId: this.#processId, revisionId };
      claimedRuns = await claimRuns(database, deploymentId, claim);
    } finally {
      this.#reservedSlots -= slots + extraSlots - claimedRuns.length;
    }
    for (const run of claimedRuns) this.#attempt(run, claimedAtMs);
    if (claimedRuns.length > 0) this.#search.wake();
    if (claimedRuns.length > 0 || this.#isFull) return undefined;
    // `getMsToNextRun` omits runs that are overdue because a request writes to their thread; that request wakes the
    // executor.
    const dueMs = await getMsToNextRun(database, deploymentId, dueRecheckDelayMs);
    return dueMs === undefined || dueMs > 0 ? dueMs : dueRecheckDelayMs;
  }

  /** Returns the slots of a claim. Without free slots, a claim for the extra slots becomes due. */
  #chooseSlots(): { readonly slots: number; readonly extraSlots: number } {
    const { pool } = this.#deps;
    const freeSlots = this.#leases.alive ? pool.freeSlots - this.#reservedSlots : 0;
    const slots = Math.max(0, freeSlots);
    const extraSlots = this.#leases.alive ? Math.max(0, pool.extraSlots + Math.min(0, freeSlots)) : 0;
    this.#isFull = slots === 0;
    const isDelayed = this.#isFull && !this.#isExtraClaimDue;
    this.#isExtraClaimDue = false;
    if (!isDelayed) return { slots, extraSlots };
    if (extraSlots > 0) this.#extraTimer ??= setTimeout(() => this.#claimExtraRuns(), extraClaimDelayMs);
    return { slots, extraSlots: 0 };
  }

  #claimExtraRuns(): void {
    this.#extraTimer = undefined;
    this.#isExtraClaimDue = true;
    this.#search.wake();
  }

  /** Starts an attempt of a claimed run. The caller has reserved a slot for it. */
  #attempt(run: ClaimedRun, claimedAtMs: number): void {
    let isReserved = true;
    const endReservation = () => {
      if (isReserved) this.#reservedSlots -= 1;
      isReserved = false;
    };
    const deps = { ...this.#deps, isStopping: () => this.#isStopping, onAccepted: endReservation };
    const attempt = attemptRun(deps, this.#leases, run, claimedAtMs)
      .catch((err) => this.#deps.logger.error({ err, runId: run.runId }, 'attempt failed unexpectedly'))
      .finally(() => {
        endReservation();
        this.#attempts.delete(attempt);
        this.#wakeIfFull();
      });
    this.#attempts.add(attempt);
  }

  async #waitForAttempts(): Promise<void> {
    while (this.#attempts.size > 0) await Promise.all(this.#attempts);
  }

  #wakeIfFull(): void {
    if (this.#isFull) this.#search.wake();
  }

  async #sweep(): Promise<void> {
    // If one of them fails, the other still has work that it can do.
    await sweepRuns(this.#deps.database, this.#deps.deploymentId)
      .finally(async () => {
        if (await publishLateEnds(this.#deps)) this.#sweeps.wake();
      })
      .finally(() => this.#search.wake());
  }
}
