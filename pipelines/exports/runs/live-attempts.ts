/**
 * The attempts of this process, and the signal that aborts each of them.
 *
 * Invariant: while an attempt runs, its lease is renewed well before it expires. If renewal does not succeed in time,
 * or the attempt no longer owns a run that is to be exported, its signal is aborted.
 *
 *   1. Every second one statement renews the leases of all attempts in this process, as far as fence and status still
 *      allow it, and returns the renewed ones. The others were cancelled, timed out or claimed by another worker, and
 *      are aborted. A cancellation in any process therefore reaches every worker in little more than a second.
 *   2. If the database does not answer, the next second tries again. An attempt whose lease must have expired meanwhile
 *      is aborted.
 *   3. An attempt that exceeds its timeout is aborted.
 *   4. Stopping aborts all attempts.
 */
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { runForTenant } from '../../../infra/fairness/tenant-context.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { ExportLimits } from '../export-deps.ts';
import { type AttemptDeps, attemptRun } from './attempt-run.ts';
import { type NextRun, nextRuns } from './run-record.ts';

const renewEveryMs = 1_000;

interface Attempt {
  readonly fence: number;
  readonly controller: AbortController;
  renewedAtMs: number;
}

export class LiveAttempts {
  readonly #database: Database;
  readonly #limits: Pick<ExportLimits, 'exportLeaseMs' | 'exportRunTimeoutMs'>;
  readonly #logger: Logger;
  readonly #attempts = new Map<string, Attempt>();
  #timer: NodeJS.Timeout | undefined;
  #stopping = false;

  constructor(database: Database, limits: Pick<ExportLimits, 'exportLeaseMs' | 'exportRunTimeoutMs'>, logger: Logger) {
    this.#database = database;
    this.#limits = limits;
    this.#logger = logger;
  }

  get size(): number {
    return this.#attempts.size;
  }

  /** Whether this process no longer claims runs. */
  get stopping(): boolean {
    return this.#stopping;
  }

  /** Runs `work` as the attempt with this fence, under a signal whose reason is the error that ends the attempt. */
  async during<Result>(
    run: { readonly id: string; readonly fence: number },
    work: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const controller = new AbortController();
    const attempt = { fence: run.fence, controller, renewedAtMs: performance.now() };
    const { exportRunTimeoutMs: timeoutMs } = this.#limits;
    const timeout = setTimeout(() => controller.abort(runlakeError('EXPORT_RUN_TIMED_OUT', { timeoutMs })), timeoutMs);
    this.#attempts.set(run.id, attempt);
    if (this.#stopping) controller.abort(runlakeError('DRAINING'));
    this.#timer ??= setTimeout(() => void this.#renew(), renewEveryMs);
    try {
      return await work(controller.signal);
    } finally {
      clearTimeout(timeout);
      if (this.#attempts.get(run.id) === attempt) this.#attempts.delete(run.id);
    }
  }

  /** Aborts every attempt, now and later, with DRAINING. */
  stop(): void {
    this.#stopping = true;
    for (const { controller } of this.#attempts.values()) controller.abort(runlakeError('DRAINING'));
  }

  async #renew(): Promise<void> {
    const current = [...this.#attempts];
    try {
      const renewedAtMs = performance.now();
      const renewed = await this.#renewLeases(current);
      for (const [id, attempt] of current) {
        const found = renewed.get(id);
        if (found === undefined) attempt.controller.abort(runlakeError('EXPORT_ATTEMPT_OVER'));
        else if (found.projectDeleted) attempt.controller.abort(runlakeError('EXPORT_PROJECT_DELETED'));
        else attempt.renewedAtMs = renewedAtMs;
      }
    } catch (err) {
      this.#logger.warn({ err, attempts: current.length }, 'cannot renew the leases of export runs');
      const maxAgeMs = this.#limits.exportLeaseMs - renewEveryMs;
      for (const [, attempt] of current) {
        if (performance.now() - attempt.renewedAtMs > maxAgeMs)
          attempt.controller.abort(runlakeError('EXPORT_ATTEMPT_OVER'));
      }
    }
    this.#timer = this.#attempts.size === 0 ? undefined : setTimeout(() => void this.#renew(), renewEveryMs);
  }

  async #renewLeases(attempts: readonly (readonly [string, Attempt])[]) {
    if (attempts.length === 0) return new Map<string, { readonly projectDeleted: boolean }>();
    const rows = await this.#database.query<{ id: string; projectDeleted: boolean }>(
      `UPDATE bulk_export_runs AS r SET lease_until = clock_timestamp() + make_interval(secs => $3)
       FROM unnest($1::uuid[], $2::bigint[]) AS mine (id, fence), bulk_exports AS e, projects AS p
       WHERE r.id = mine.id AND r.fence = mine.fence AND r.status = 'RUNNING' AND e.id = r.bulk_export_id
         AND e.status = 'RUNNING' AND p.id = e.project_id
       RETURNING r.id, p.deleted_at IS NOT NULL AS "projectDeleted"`,
      [attempts.map(([id]) => id), attempts.map(([, { fence }]) => fence), this.#limits.exportLeaseMs / 1_000],
    );
    return new Map(rows.map((row) => [row.id, row]));
  }
}

/**
 * Chooses the next export run of this process, so that organisations share the workers fairly.
 *
 * Invariant: at most `concurrency` attempts run here, plus one for an organisation that has none running here. Among
 * the organisations with due runs, the one with the fewest leases over all processes is next.
 *
 *   1. A job only signals that some run is due. The run is chosen from the rows: the first due run of each organisation.
 *   2. The additional attempt keeps long runs of one organisation, which are not interrupted, from delaying the first
 *      run of another.
 *   3. If all slots are in use, the job waits until an attempt ends. It also checks again each second, because jobs of
 *      other organisations that become due are behind it in the queue.
 */

const pollIntervalMs = 1_000;
/** Lost races for a run before a job gives up; the sweep queues what is due. */
const maxLostRaces = 5;

export class FairAttempts {
  readonly #deps: AttemptDeps;
  readonly #concurrency: number;
  /** Attempts in this process, by organisation. */
  readonly #running = new Map<string, number>();
  /** Sequence number of the last start, by organisation. */
  readonly #lastStart = new Map<string, number>();
  #starts = 0;
  #total = 0;
  readonly #wakers = new Set<() => void>();

  constructor(deps: AttemptDeps, concurrency: number) {
    this.#deps = deps;
    this.#concurrency = concurrency;
  }

  /** Required concurrency of the job queue. */
  get maxJobs(): number {
    return this.#concurrency + 1;
  }

  /** Attempts one run, if one is due. @throws errors of the database. */
  async attemptNext(): Promise<void> {
    const { database, limits, now, attempts } = this.#deps;
    let lostRaces = 0;
    while (!attempts.stopping && lostRaces < maxLostRaces) {
      const due = await nextRuns(database, limits, now());
      if (due.length === 0) return;
      const chosen = this.#choose(due);
      if (chosen === undefined) {
        await this.#untilEnd();
      } else if (await this.#attempt(chosen)) return;
      else lostRaces += 1;
    }
  }

  /** Resolves when an attempt in this process ends, or after the poll interval. */
  async #untilEnd(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => wake(), pollIntervalMs);
      const wake = () => {
        clearTimeout(timer);
        this.#wakers.delete(wake);
        resolve();
      };
      this.#wakers.add(wake);
    });
  }

  #choose(due: readonly NextRun[]): NextRun | undefined {
    if (this.#total > this.#concurrency) return undefined;
    return due
      .filter(({ organizationId }) => this.#total < this.#concurrency || !this.#running.has(organizationId))
      .toSorted(
        (a, b) =>
          a.leases - b.leases ||
          (this.#lastStart.get(a.organizationId) ?? 0) - (this.#lastStart.get(b.organizationId) ?? 0),
      )[0];
  }

  async #attempt({ id, organizationId }: NextRun): Promise<boolean> {
    this.#starts += 1;
    this.#lastStart.delete(organizationId);
    this.#lastStart.set(organizationId, this.#starts);
    for (const oldest of this.#lastStart.keys()) {
      if (this.#lastStart.size <= maxRemembered) break;
      this.#lastStart.delete(oldest);
    }
    this.#total += 1;
    this.#running.set(organizationId, (this.#running.get(organizationId) ?? 0) + 1);
    try {
      return await runForTenant({ organizationId }, () => attemptRun(this.#deps, id));
    } finally {
      this.#total -= 1;
      const left = (this.#running.get(organizationId) ?? 1) - 1;
      if (left === 0) this.#running.delete(organizationId);
      else this.#running.set(organizationId, left);
      for (const wake of this.#wakers) wake();
    }
  }
}

/** Maximum number of organisations whose last start is remembered. */
const maxRemembered = 10_000;
