/**
 * The attempts that run in this process, and the signals that abort them.
 *
 * Invariant: while an attempt runs, its lease is renewed well before it expires. The signal of an attempt is aborted
 * before its lease expires, when the attempt no longer owns its run, and when its run may no longer be exported.
 *
 *   1. Once per second, one statement renews the leases of all attempts in this process whose fencing token and status
 *      are still valid, and returns their runs. Attempts whose runs are not returned are aborted, because these runs
 *      were cancelled, timed out or claimed by another worker. Therefore a cancellation in any process reaches every
 *      worker in little more than a second.
 *   2. The statement skips rows that another transaction has locked. It uses its own connection, with a timeout that is
 *      shorter than the lease. Therefore neither a lock nor a busy pool delays the renewal of other leases.
 *   3. A timer of each attempt aborts the attempt a second before its lease expires by the local clock, even if the
 *      database does not respond.
 *   4. An attempt that exceeds its timeout is aborted.
 *   5. `stop` aborts all attempts.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { ExportLimits } from './export-deps.ts';

const renewalIntervalMs = 1_000;

/** Timeout of statements on the connection that renews leases. */
export function getLeaseTimeoutMs({ exportLeaseMs }: Pick<ExportLimits, 'exportLeaseMs'>): number {
  return Math.ceil(exportLeaseMs / 3);
}

interface Attempt {
  readonly fence: number;
  readonly controller: AbortController;
  expiry: NodeJS.Timeout | undefined;
}

interface RenewedRun {
  readonly id: string;
  readonly projectDeleted: boolean;
  /** Whether the lease was renewed. False if another transaction has locked the row. */
  readonly renewed: boolean;
}

export class LiveAttempts {
  readonly #leases: Sql;
  readonly #limits: Pick<ExportLimits, 'exportLeaseMs' | 'exportRunTimeoutMs'>;
  readonly #logger: Logger;
  readonly #attempts = new Map<string, Attempt>();
  #timer: NodeJS.Timeout | undefined;
  readonly #stopped = new AbortController();

  /** @param leases A dedicated connection whose statement timeout is {@link getLeaseTimeoutMs}. */
  constructor(leases: Sql, limits: Pick<ExportLimits, 'exportLeaseMs' | 'exportRunTimeoutMs'>, logger: Logger) {
    this.#leases = leases;
    this.#limits = limits;
    this.#logger = logger;
  }

  get size(): number {
    return this.#attempts.size;
  }

  /** Whether this process has stopped claiming runs. */
  get stopping(): boolean {
    return this.#stopped.signal.aborted;
  }

  /** Aborted with DRAINING by {@link stop}. */
  get stopped(): AbortSignal {
    return this.#stopped.signal;
  }

  /**
   * Runs `work` as the attempt that has the fencing token of `run`. If the attempt must end early, the signal is
   * aborted, and its reason is the error that ends the attempt.
   *
   * @param claimedAtMs value of `performance.now()` before the claim.
   */
  async run<Result>(
    run: { readonly id: string; readonly fence: number },
    claimedAtMs: number,
    work: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const controller = new AbortController();
    const attempt: Attempt = { fence: run.fence, controller, expiry: undefined };
    const { exportRunTimeoutMs: timeoutMs } = this.#limits;
    const timeout = setTimeout(() => controller.abort(runlakeError('EXPORT_RUN_TIMED_OUT', { timeoutMs })), timeoutMs);
    this.#extendLease(attempt, claimedAtMs);
    this.#attempts.set(run.id, attempt);
    if (this.stopping) controller.abort(runlakeError('DRAINING'));
    this.#timer ??= setTimeout(() => void this.#renew(), renewalIntervalMs);
    try {
      return await work(controller.signal);
    } finally {
      clearTimeout(timeout);
      if (this.#attempts.get(run.id) === attempt) this.#attempts.delete(run.id);
      clearTimeout(attempt.expiry);
    }
  }

  /** Aborts all attempts with DRAINING, including those that are started later. */
  stop(): void {
    this.#stopped.abort(runlakeError('DRAINING'));
    for (const { controller } of this.#attempts.values()) controller.abort(this.#stopped.signal.reason);
  }

  #extendLease(attempt: Attempt, renewedAtMs: number): void {
    clearTimeout(attempt.expiry);
    const leftMs = renewedAtMs + this.#limits.exportLeaseMs - renewalIntervalMs - performance.now();
    attempt.expiry = setTimeout(() => attempt.controller.abort(runlakeError('EXPORT_ATTEMPT_OVER')), leftMs);
  }

  async #renew(): Promise<void> {
    const current = [...this.#attempts];
    try {
      const renewedAtMs = performance.now();
      const ownedRuns = await this.#renewLeases(current);
      for (const [id, attempt] of current) {
        const run = ownedRuns.get(id);
        if (run === undefined) attempt.controller.abort(runlakeError('EXPORT_ATTEMPT_OVER'));
        else if (run.projectDeleted) attempt.controller.abort(runlakeError('EXPORT_PROJECT_DELETED'));
        else if (run.renewed && this.#attempts.get(id) === attempt) this.#extendLease(attempt, renewedAtMs);
      }
    } catch (err) {
      this.#logger.warn({ err, attempts: current.length }, 'cannot renew the leases of export runs');
    }
    this.#timer = this.#attempts.size === 0 ? undefined : setTimeout(() => void this.#renew(), renewalIntervalMs);
  }

  async #renewLeases(attempts: readonly (readonly [string, Attempt])[]): Promise<Map<string, RenewedRun>> {
    if (attempts.length === 0) return new Map();
    const rows = await this.#leases.query<RenewedRun>(
      `WITH owned AS (
         SELECT r.id, r.fence, p.deleted_at IS NOT NULL AS project_deleted
         FROM unnest($1::uuid[], $2::bigint[]) AS mine (id, fence) JOIN bulk_export_runs AS r USING (id, fence)
           JOIN bulk_exports AS e ON e.id = r.bulk_export_id JOIN projects AS p ON p.id = e.project_id
         WHERE r.status = 'RUNNING' AND e.status = 'RUNNING'
       ), unlocked AS (
         SELECT r.id FROM bulk_export_runs AS r JOIN owned USING (id, fence)
         WHERE r.status = 'RUNNING' FOR NO KEY UPDATE OF r SKIP LOCKED
       ), renewed AS (
         UPDATE bulk_export_runs AS r SET lease_until = clock_timestamp() + make_interval(secs => $3)
         FROM unlocked WHERE r.id = unlocked.id RETURNING r.id
       )
       SELECT id, project_deleted AS "projectDeleted", id IN (SELECT id FROM renewed) AS renewed FROM owned`,
      [attempts.map(([id]) => id), attempts.map(([, { fence }]) => fence), this.#limits.exportLeaseMs / 1_000],
    );
    return new Map(rows.map((row) => [row.id, row]));
  }
}
