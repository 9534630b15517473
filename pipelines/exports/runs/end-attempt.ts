import { fault, isRunlakeError, type RunlakeError } from '../../../infra/errors/runlake-error.ts';
import { enqueueRun } from '../enqueue.ts';
import type { ExportPorts } from '../export-ports.ts';
import { endExport, enqueueWaiting } from '../finish-export.ts';
import type { ExportRunRecord } from './run-record.ts';

type Ports = Pick<ExportPorts, 'database' | 'jobs' | 'logger' | 'now' | 'limits'>;

export type AttemptEnd = 'retried' | 'failed' | 'over' | 'released';

/**
 * Writes down what an attempt ended with that did not complete its run, and what comes next. Every write demands its fence.
 *
 * - The attempt is over, for its export ended or another worker has the run: nothing.
 * - The process stops: the run waits for the next worker, at once and without a retry.
 * - The fault is the caller's, as a bucket that is not there, or the retries are used up: the run is FAILED, and with it its export,
 *   in one transaction.
 * - Anything else may pass, or is worth another try: the run waits for its next attempt.
 *
 * @throws what the database throws; the lease then runs out by itself, and the run is taken up again without a retry.
 */
export async function endAttempt(ports: Ports, run: ExportRunRecord, reason: unknown): Promise<AttemptEnd> {
  const error = isRunlakeError(reason) ? reason : fault('INTERNAL', {}, { cause: reason });
  if (error.code === 'EXPORT_ATTEMPT_OVER') return 'over';
  const { logger, limits } = ports;
  if (error.code === 'DRAINING') return release(ports, run);
  const about = { err: error, exportId: run.exportId, runId: run.id, retryNumber: run.retryNumber };
  if (error.class === 'caller' || run.retryNumber >= limits.exportRetries) {
    logger.error(about, 'a run of a bulk export has failed');
    return fail(ports, run, error);
  }
  logger.warn(about, 'an attempt at a run of a bulk export failed; it is tried again');
  return retry(ports, run, error);
}

async function release(ports: Ports, run: ExportRunRecord): Promise<AttemptEnd> {
  const released = await ports.database.execute(
    `UPDATE bulk_export_runs SET lease_until = NULL, attempt_started_at = NULL, next_attempt_at = $3, updated_at = $3
     WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
    [run.id, run.fence, ports.now().toISOString()],
  );
  if (released === 0) return 'over';
  await enqueueRun(ports, run);
  return 'released';
}

async function retry(ports: Ports, run: ExportRunRecord, error: RunlakeError): Promise<AttemptEnd> {
  const delayMs = ports.limits.exportRetryDelayMs;
  const now = ports.now();
  const noted = await ports.database.execute(
    `UPDATE bulk_export_runs SET retry_number = retry_number + 1, errors = coalesce(errors, '{}') || $3,
       lease_until = NULL, attempt_started_at = NULL, next_attempt_at = $4, updated_at = $5
     WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
    [run.id, run.fence, causeOf(run, error), new Date(now.getTime() + delayMs).toISOString(), now.toISOString()],
  );
  if (noted === 0) return 'over';
  await enqueueRun(ports, run, delayMs);
  return 'retried';
}

async function fail(ports: Ports, run: ExportRunRecord, error: RunlakeError): Promise<AttemptEnd> {
  const now = ports.now();
  const workspaceId = await ports.database.transaction(async (tx) => {
    // First the export, then its runs: in the order of everybody who holds both.
    await tx.query('SELECT FROM bulk_exports WHERE id = $1 FOR UPDATE', [run.exportId]);
    const noted = await tx.execute(
      `UPDATE bulk_export_runs SET status = 'FAILED', errors = coalesce(errors, '{}') || $3, lease_until = NULL,
         attempt_started_at = NULL, updated_at = $4, finished_at = $4
       WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
      [run.id, run.fence, causeOf(run, error), now.toISOString()],
    );
    if (noted === 0) return undefined;
    const reason = `The run of ${run.startTime.slice(0, 10)} has failed: ${textOf(error)}`;
    return endExport(tx, run.exportId, { to: 'FAILED', reason }, now);
  });
  if (workspaceId === undefined) return 'over';
  await enqueueWaiting(ports, workspaceId);
  return 'failed';
}

/** By attempt, as `errors` holds it. The catalogue's words only: causes may hold secrets. */
function causeOf({ retryNumber }: ExportRunRecord, error: RunlakeError): Record<string, string> {
  return { [`retry_${retryNumber}`]: textOf(error) };
}

export function textOf({ message, remedy }: RunlakeError): string {
  return `${message} ${remedy}`;
}
