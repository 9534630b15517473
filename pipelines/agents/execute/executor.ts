/**
 * Executes runs: takes them up, holds their leases, and sees each to its end.
 *
 * Invariant: a running run has one token, which one process knows, and every write of a run's outcome or state tests it. Whatever this
 * process believes, only the holder of the token decides how a run ends.
 *
 *   1. It looks for runs when a thread has one to start, whoever made it so (NOTIFY), when the next one is due, when there is room
 *      again after there was none, and each second.
 *   2. It claims the first due runs of as many threads as the workers have room for, shared fairly between callers. Who makes a run in
 *      this process while there is room takes a seat for it, and claims it with the statement that makes it. While there is no room it
 *      claims for callers that hold less than their share, with the extra slots of the workers.
 *   3. Each claimed run is attempted (`attempt-run.ts`): streamed, ended or given back.
 *   4. It claims only while its heartbeat is valid (`leases.ts`). An attempt that loses its lease stops and requeues its run; one that
 *      was cancelled stops.
 *   5. Each second, runs of processes whose heartbeat has expired are requeued, and ends that are not in the log are published.
 *   6. `stop` claims nothing more, lets runs go on for the time given, and gives the rest back without counting it against them.
 */
import { randomUUID } from 'node:crypto';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { claimRuns } from '../runs/claim-runs.ts';
import { nextDue } from '../runs/next-due.ts';
import { releaseRun } from '../runs/release-run.ts';
import type { Seat } from '../runs/request-run.ts';
import type { ClaimedRun } from '../runs/run-row.ts';
import { sweepRuns } from '../runs/sweep-runs.ts';
import type { StreamPublisher } from '../streams/stream-ports.ts';
import type { ChildRuns } from '../traces/child-runs.ts';
import type { WorkerPool } from '../workers/worker-pool.ts';
import { attemptRun } from './attempt-run.ts';
import type { MarkEndPublished } from './end-marks.ts';
import type { FeedbackLinks } from './feedback-links.ts';
import { Leases } from './leases.ts';
import { publishLateEnds } from './publish-end.ts';
import type { TraceRun } from './trace-run.ts';

export interface ExecutorPorts {
  readonly database: Database;
  readonly pool: WorkerPool;
  readonly publisher: StreamPublisher;
  readonly deploymentId: string;
  /** Writes a run that ended as a trace. Repeating it is harmless. */
  readonly traceRun: TraceRun;
  readonly childRuns: Pick<ChildRuns, 'open'>;
  readonly markEndPublished: MarkEndPublished;
  /** Links under which feedback can be left. Unset: no run asks for them. */
  readonly feedbackLinks?: FeedbackLinks | undefined;
  readonly logger: Logger;
  /** A connection for the heartbeat alone, with a statement timeout below `leaseMs`. */
  readonly heartbeats: Sql;
  readonly leaseMs: number;
  readonly runTimeoutMs: number;
}

export interface Executor {
  /** A run was made, ended or cancelled: look. */
  wake(): void;
  /** Somebody asked to cancel a run that may be under way here. */
  lookAtLeases(): void;
  /** A run ended without a process that executed it: its end is to be published. */
  lookAtEnds(): void;
  /** Undefined where there is no room, or where others are before. */
  takeSeat(): Seat | undefined;
  /** Runs that this process holds. */
  readonly running: number;
  stop(drainMs: number): Promise<void>;
}

const sweepEveryMs = 1_000;
/** A run that is due no longer than this may have become so after the look for runs that are. */
const dueSinceMs = 20;
/** Pause before it looks for runs that may have extra slots: each run that is made while all slots are used asks for a look. */
const extraPauseMs = 25;

export function startExecutor(ports: ExecutorPorts): Executor {
  const { database, pool, deploymentId, logger } = ports;
  const processId = randomUUID();
  const leases = new Leases({
    ...ports,
    process: { deploymentId, processId },
    requeue: (run) => releaseRun(database, { ...run, deploymentId }, { alone: false, countLoss: true }),
    onAlive: () => wake(),
  });
  const attempts = new Set<Promise<void>>();
  let stopping = false;
  let looking: Promise<void> | undefined;
  let again = false;
  let dueTimer: NodeJS.Timeout | undefined;
  let extraTimer: NodeJS.Timeout | undefined;
  let extraDue = false;
  /** Runs that have a place in a worker but are not in it yet. */
  let seats = 0;
  /** Runs may be due that there was no room for. */
  let outOfRoom = false;
  const room = () => (leases.alive ? pool.freeSlots - seats : 0);
  const extraRoom = () => (leases.alive ? Math.max(0, pool.extraSlots + Math.min(0, room())) : 0);

  /** One look at a time; what wakes it meanwhile makes it look once more. */
  function wake(): void {
    if (stopping) return;
    again = true;
    looking ??= look().finally(() => {
      looking = undefined;
      if (again) wake();
    });
  }

  async function look(): Promise<void> {
    while (again && !stopping) {
      again = false;
      try {
        await takeUp();
      } catch (err) {
        logger.warn({ err }, 'runs could not be taken up: trying again');
        return;
      }
    }
  }

  async function takeUp(): Promise<void> {
    clearTimeout(dueTimer);
    const slots = Math.max(0, room());
    outOfRoom = slots === 0;
    const extraSlots = outOfRoom && !extraDue ? 0 : extraRoom();
    if (outOfRoom && !extraDue && extraRoom() > 0) extraTimer ??= setTimeout(takeUpExtra, extraPauseMs);
    extraDue = false;
    if (slots + extraSlots === 0) return;
    const claimedAtMs = performance.now();
    seats += slots + extraSlots;
    let claimed: readonly ClaimedRun[] = [];
    try {
      claimed = await claimRuns(database, deploymentId, { slots, extraSlots, processId });
    } finally {
      seats -= slots + extraSlots - claimed.length;
    }
    for (const run of claimed) attempt(run, claimedAtMs);
    again ||= claimed.length > 0;
    if (again || outOfRoom) return;
    // A request that writes to a thread wakes the executor when it is done.
    const dueMs = await nextDue(database, deploymentId, dueSinceMs);
    if (dueMs === undefined || stopping) return;
    dueTimer = setTimeout(wake, dueMs > 0 ? Math.min(Math.ceil(dueMs), 60_000) : dueSinceMs);
  }

  function takeUpExtra(): void {
    extraTimer = undefined;
    extraDue = true;
    wake();
  }

  /** Of a run that has a seat. */
  function attempt(run: ClaimedRun, claimedAtMs: number): void {
    let seated = true;
    const leaveSeat = () => {
      if (seated) seats -= 1;
      seated = false;
    };
    const attempted = attemptRun({ ...ports, stopping: () => stopping, inPool: leaveSeat }, leases, run, claimedAtMs)
      .catch((err) => logger.error({ err, runId: run.runId }, 'an attempt broke off'))
      .finally(() => {
        leaveSeat();
        attempts.delete(attempted);
        wakeIfOutOfRoom();
      });
    attempts.add(attempted);
  }

  async function ended(): Promise<void> {
    while (attempts.size > 0) await Promise.all(attempts);
  }

  function wakeIfOutOfRoom(): void {
    if (outOfRoom) wake();
  }

  function takeSeat(): Seat | undefined {
    if (stopping || outOfRoom || room() <= 0) return undefined;
    const takenAtMs = performance.now();
    seats += 1;
    return {
      processId,
      use: (claimed) => {
        if (claimed !== undefined) attempt(claimed, takenAtMs);
        else {
          seats -= 1;
          wakeIfOutOfRoom();
        }
      },
    };
  }

  let sweeping: Promise<void> | undefined;
  let sweepAgain = false;
  function sweep(): void {
    if (stopping) return;
    sweepAgain = true;
    sweeping ??= lookOver().finally(() => {
      sweeping = undefined;
    });
  }

  async function lookOver(): Promise<void> {
    while (sweepAgain && !stopping) {
      sweepAgain = false;
      try {
        await sweepRuns(database, deploymentId);
        await publishLateEnds(ports);
      } catch (err) {
        logger.warn({ err }, 'runs could not be looked over: trying again');
      }
    }
    wake();
  }
  const sweeper = setInterval(sweep, sweepEveryMs);

  pool.onFree(wakeIfOutOfRoom);
  wake();

  return {
    wake,
    takeSeat,
    lookAtLeases: () => leases.renewSoon(),
    lookAtEnds: sweep,
    get running() {
      return attempts.size;
    },
    async stop(drainMs) {
      stopping = true;
      clearInterval(sweeper);
      clearTimeout(dueTimer);
      clearTimeout(extraTimer);
      await Promise.all([looking, sweeping]);
      await Promise.all([pool.close(drainMs), ended()]);
      await leases.stop();
    },
  };
}
