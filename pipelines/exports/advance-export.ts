import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { enqueueRun } from './enqueue.ts';
import type { WorkDeps } from './export-deps.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';
import { endExport, enqueueWaiting, finishExport } from './finish-export.ts';
import { writeManifest } from './manifest.ts';
import { dueRuns } from './runs/due-runs.ts';
import { textOf } from './runs/end-attempt.ts';
import { spawnDue } from './schedules.ts';
import { type FilesCheck, verifyFiles } from './verify-files.ts';

/** Two export runs may end at the same time. If a third ends as well, the sweep queues the run it makes room for. */
const maxNewRuns = 2;

/**
 * Advances an export after one of its export runs has ended: queues the next runs or, when none is left, writes the
 * manifest and marks the export COMPLETED. It then spawns the next interval of its schedule, which may have waited for
 * this export. Idempotent.
 *
 * @param signal If aborted, checking the files and writing the manifest stop.
 * @throws errors of the database, transient errors of the object store, and the reason of `signal`. The sweep then
 *   calls this again.
 */
export async function advanceExport(deps: WorkDeps, exportId: string, signal?: AbortSignal): Promise<void> {
  const { database, limits, now } = deps;
  const [at] = await database.query<{ open: number; completed: number }>(
    `SELECT count(*) FILTER (WHERE finished_at IS NULL) AS open, count(*) FILTER (WHERE status = 'COMPLETED') AS completed
     FROM bulk_export_runs WHERE bulk_export_id = $1`,
    [exportId],
  );
  if (at === undefined) return;
  if (at.open > 0) {
    // Below the limit all unfinished export runs are queued already.
    if (at.open < limits.exportRunsAtOnce) return;
    for (const run of await dueRuns(database, limits, now(), { exportId, newest: maxNewRuns }))
      await enqueueRun(deps, run);
    return;
  }
  const [of] = await database.query<ExportRecord>(
    `SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1 AND status = 'RUNNING' AND interval_hours IS NULL`,
    [exportId],
  );
  if (of === undefined || at.completed === 0) return;
  await completeExport(deps, of, signal);
  if (of.sourceExportId !== null) await spawnDue(deps, of.sourceExportId);
}

async function completeExport(deps: WorkDeps, of: ExportRecord, signal?: AbortSignal): Promise<void> {
  try {
    const store = await deps.openStore(of);
    try {
      const check = await verifyFiles(deps, of, store, signal);
      if (check.kind === 'gone') return await failExport(deps, of, check);
      if (check.unchecked > 0) {
        const about = { exportId: of.id, files: check.unchecked };
        deps.logger.warn(about, 'cannot check files of a bulk export: its destination denies reading');
      }
      const manifest = await writeManifest(deps, of, store, { uncheckedFiles: check.unchecked, signal });
      const completed = await finishExport(deps, of.id, { to: 'COMPLETED', reason: null });
      // If the export was cancelled or timed out meanwhile, no manifest may say that it is complete. If another worker
      // completed it, the manifest stays.
      if (!completed && !(await isCompleted(deps, of.id))) await manifest.takeBack();
    } finally {
      await store.close();
    }
  } catch (err) {
    if (!isRunlakeError(err) || err.class !== 'caller') throw err;
    deps.logger.error({ err, exportId: of.id }, 'cannot write the manifest of a bulk export');
    await finishExport(deps, of.id, { to: 'FAILED', reason: `The manifest cannot be written: ${textOf(err)}` });
  }
}

/**
 * A lost file cannot be made again, so there is no retry. The export becomes FAILED. The export run stays COMPLETED,
 * and its `errors` names the cause too.
 */
async function failExport(
  deps: WorkDeps,
  of: ExportRecord,
  { runId, error }: Extract<FilesCheck, { kind: 'gone' }>,
): Promise<void> {
  deps.logger.error({ err: error, exportId: of.id, runId }, 'a file of a bulk export is missing in its destination');
  const now = deps.now();
  const ended = await deps.database.transaction(async (tx) => {
    const workspaceId = await endExport(tx, of.id, { to: 'FAILED', reason: textOf(error) }, now);
    if (workspaceId === undefined) return undefined;
    await tx.execute(
      `UPDATE bulk_export_runs SET updated_at = $3,
         errors = coalesce(errors, '{}') || jsonb_build_object('retry_' || retry_number, $2::text)
       WHERE id = $1 AND status = 'COMPLETED'`,
      [runId, textOf(error), now.toISOString()],
    );
    return workspaceId;
  });
  if (ended !== undefined) await enqueueWaiting(deps, ended);
}

async function isCompleted({ database }: Pick<WorkDeps, 'database'>, exportId: string): Promise<boolean> {
  const [of] = await database.query(`SELECT FROM bulk_exports WHERE id = $1 AND status = 'COMPLETED'`, [exportId]);
  return of !== undefined;
}
