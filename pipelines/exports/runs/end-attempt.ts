import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { enqueueRun } from '../enqueue.ts';
import type { ExportDeps } from '../export-deps.ts';
import { endExport, enqueueWaiting } from '../finish-export.ts';
import type { ExportRunRecord } from './run-record.ts';

type Deps = Pick<ExportDeps, 'database' | 'jobs' | 'logger' | 'now' | 'limits'>;

export type AttemptEnd = 'retried' | 'failed' | 'over' | 'released';

/**
 * Records how an attempt that did not complete its export run ended, and what follows. Every write checks the fencing token.
 *
 * - The attempt is over because its export ended or another worker claimed the run: no write.
 * - The process stops: the run is released and can be claimed at once, without a retry.
 * - The caller caused the error (for example a missing bucket), or the retries are used up: the run and its export
 *   become FAILED in one transaction.
 * - Any other error may be transient: the run waits for its next attempt.
 *
 * @throws errors of the database; the lease then expires, and the run is claimed again without a retry.
 */
export async function endAttempt(deps: Deps, run: ExportRunRecord, reason: unknown): Promise<AttemptEnd> {
  const error = isRunlakeError(reason) ? reason : runlakeError('INTERNAL', {}, { cause: reason });
  if (error.code === 'EXPORT_ATTEMPT_OVER') return 'over';
  const { logger, limits } = deps;
  if (error.code === 'DRAINING') return release(deps, run);
  const about = { err: error, exportId: run.exportId, runId: run.id, retryNumber: run.retryNumber };
  if (error.class === 'caller' || run.retryNumber >= limits.exportRetries) {
    logger.error(about, 'a bulk export run failed');
    return fail(deps, run, error);
  }
  logger.warn(about, 'an attempt at a bulk export run failed; it will be retried');
  return retry(deps, run, error);
}

async function release(deps: Deps, run: ExportRunRecord): Promise<AttemptEnd> {
  const released = await deps.database.execute(
    `UPDATE bulk_export_runs SET lease_until = NULL, attempt_started_at = NULL, next_attempt_at = $3, updated_at = $3
     WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
    [run.id, run.fence, deps.now().toISOString()],
  );
  if (released === 0) return 'over';
  await enqueueRun(deps, run);
  return 'released';
}

async function retry(deps: Deps, run: ExportRunRecord, error: RunlakeError): Promise<AttemptEnd> {
  const delayMs = deps.limits.exportRetryDelayMs;
  const now = deps.now();
  const updated = await deps.database.execute(
    `UPDATE bulk_export_runs SET retry_number = retry_number + 1, errors = coalesce(errors, '{}') || $3,
       lease_until = NULL, attempt_started_at = NULL, next_attempt_at = $4, updated_at = $5
     WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
    [run.id, run.fence, errorEntry(run, error), new Date(now.getTime() + delayMs).toISOString(), now.toISOString()],
  );
  if (updated === 0) return 'over';
  await enqueueRun(deps, run, delayMs);
  return 'retried';
}

async function fail(deps: Deps, run: ExportRunRecord, error: RunlakeError): Promise<AttemptEnd> {
  const now = deps.now();
  const workspaceId = await deps.database.transaction(async (tx) => {
    // Lock order: the export first, then its runs, as everywhere.
    await tx.query('SELECT FROM bulk_exports WHERE id = $1 FOR UPDATE', [run.exportId]);
    const updated = await tx.execute(
      `UPDATE bulk_export_runs SET status = 'FAILED', errors = coalesce(errors, '{}') || $3, lease_until = NULL,
         attempt_started_at = NULL, updated_at = $4, finished_at = $4
       WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
      [run.id, run.fence, errorEntry(run, error), now.toISOString()],
    );
    if (updated === 0) return undefined;
    const reason = `The export run of ${run.startTime.slice(0, 10)} failed: ${textOf(error)}`;
    return endExport(tx, run.exportId, { to: 'FAILED', reason }, now);
  });
  if (workspaceId === undefined) return 'over';
  await enqueueWaiting(deps, workspaceId);
  return 'failed';
}

/** An entry of `errors`. Only texts of the catalogue: causes may contain secrets. */
function errorEntry({ retryNumber }: ExportRunRecord, error: RunlakeError): Record<string, string> {
  return { [`retry_${retryNumber}`]: textOf(error) };
}

export function textOf({ message, remedy }: RunlakeError): string {
  return `${message} ${remedy}`;
}
