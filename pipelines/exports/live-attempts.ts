/**
 * The attempts that run in this process, and the signal that aborts each of them.
 *
 * Invariant: while an attempt runs, its lease is renewed well before it expires. The signal of an attempt is aborted if
 * its lease cannot be renewed in time, if it no longer owns its run, or if the run is no longer to be exported.
 *
 *   1. Every second one statement renews the leases of all attempts in this process whose fencing token and status are
 *      still valid, and returns their runs. Attempts whose runs are not returned are aborted: these runs were
 *      cancelled, timed out or claimed by another worker. A cancellation in any process therefore reaches every worker
 *      in little more than a second.
 *   2. If the database does not answer, the next try follows after a second. An attempt whose lease has expired, or
 *      expires within a second, is aborted.
 *   3. An attempt that exceeds its timeout is aborted.
 *   4. `stop` aborts all attempts.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { ExportLimits } from './export-deps.ts';

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

  /**
   * Runs `work` as the attempt with the fencing token of `run`. If the attempt must end early, the signal is aborted
   * with the error that ends the attempt as its reason.
   */
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

  /** Aborts all attempts with DRAINING, including those that start later. */
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
