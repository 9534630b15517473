import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { WorkDeps } from '../export-deps.ts';
import { keyOfPart } from '../export-locations.ts';
import { type ExportRecord, exportColumns } from '../export-record.ts';
import { type ExportRunRecord, runColumns } from './run-record.ts';

/** Timeout for a bucket that hangs; the next sweep tries again. */
const tidyTimeoutMs = 5_000;

/**
 * Removes from the bucket what a run that did not complete has written but not recorded: a multipart upload, or an
 * object that no file list contains. Missing permissions are ignored: the run then counts as tidy. Does nothing while a
 * worker may still be writing. After a transient error or a timeout, a later call tries again.
 *
 * @param run With `fence` when the run's last worker calls; this call then ends its lease.
 * @throws errors of the database.
 */
export async function tidyRun(
  deps: Pick<WorkDeps, 'database' | 'openStore' | 'logger'>,
  run: Pick<ExportRunRecord, 'id'> & { readonly fence?: number },
): Promise<void> {
  const { database, logger } = deps;
  if (run.fence !== undefined) {
    await database.execute(
      'UPDATE bulk_export_runs SET lease_until = NULL WHERE id = $1 AND fence = $2 AND finished_at IS NOT NULL',
      [run.id, run.fence],
    );
  }
  const [left] = await database.query<ExportRunRecord>(
    `SELECT ${runColumns} FROM bulk_export_runs AS r
     WHERE id = $1 AND finished_at IS NOT NULL AND pending_upload IS NOT NULL
       AND (lease_until IS NULL OR lease_until <= clock_timestamp())`,
    [run.id],
  );
  const pending = left?.pendingUpload;
  if (left === undefined || pending === undefined || pending === null) return;
  const [of] = await database.query<ExportRecord>(`SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1`, [
    left.exportId,
  ]);
  if (of === undefined) return;
  const signal = AbortSignal.timeout(tidyTimeoutMs);
  try {
    const store = await deps.openStore(of);
    try {
      const key = keyOfPart(of, left, pending.part);
      await store.abortUploads(key, pending.uploadId === null ? [] : [pending.uploadId], { signal });
      await store.delete(key, { signal });
    } finally {
      await store.close();
    }
  } catch (err) {
    logger.warn({ err, runId: left.id }, 'cannot remove unrecorded objects of an export run from the bucket');
    if (signal.aborted || (isRunlakeError(err) && err.class === 'transient')) return;
  }
  await database.execute(
    'UPDATE bulk_export_runs SET pending_upload = NULL WHERE id = $1 AND finished_at IS NOT NULL',
    [left.id],
  );
}
