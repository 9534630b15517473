import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { enqueueRun } from './enqueue.ts';
import type { WorkPorts } from './export-ports.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';
import { endExport, enqueueWaiting, finishExport } from './finish-export.ts';
import { writeManifest } from './manifest.ts';
import { dueRuns } from './runs/due-runs.ts';
import { textOf } from './runs/end-attempt.ts';
import { spawnDue } from './schedules.ts';
import { type FilesCheck, verifyFiles } from './verify-files.ts';

/** Two runs may end at the same moment; what a third makes room for, the sweep finds. */
const newcomers = 2;

/**
 * Brings an export on when a run of it is over: the next runs are queued; where none is left, the manifest is written, and the
 * export is COMPLETED. Then the next interval of its schedule may have waited for that. Repeating it is harmless.
 *
 * @param signal Once it is aborted the manifest is not waited for any more.
 * @throws what the database throws, what the store throws for now, and the reason of `signal`: the sweep comes back to it.
 */
export async function advanceExport(ports: WorkPorts, exportId: string, signal?: AbortSignal): Promise<void> {
  const { database, limits, now } = ports;
  const [at] = await database.query<{ open: number; completed: number }>(
    `SELECT count(*) FILTER (WHERE finished_at IS NULL) AS open, count(*) FILTER (WHERE status = 'COMPLETED') AS completed
     FROM bulk_export_runs WHERE bulk_export_id = $1`,
    [exportId],
  );
  if (at === undefined) return;
  if (at.open > 0) {
    // With room for all of them all are queued already.
    if (at.open < limits.exportRunsAtOnce) return;
    for (const run of await dueRuns(database, limits, now(), { exportId, newest: newcomers }))
      await enqueueRun(ports, run);
    return;
  }
  const [of] = await database.query<ExportRecord>(
    `SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1 AND status = 'RUNNING' AND interval_hours IS NULL`,
    [exportId],
  );
  if (of === undefined || at.completed === 0) return;
  await completeExport(ports, of, signal);
  if (of.sourceExportId !== null) await spawnDue(ports, of.sourceExportId);
}

async function completeExport(ports: WorkPorts, of: ExportRecord, signal?: AbortSignal): Promise<void> {
  try {
    const store = await ports.openStore(of);
    try {
      const check = await verifyFiles(ports, of, store, signal);
      if (check.kind === 'gone') return await failExport(ports, of, check);
      if (check.unchecked > 0) {
        const about = { exportId: of.id, files: check.unchecked };
        ports.logger.warn(about, 'files of a bulk export may not be read in its destination: not checked');
      }
      const manifest = await writeManifest(ports, of, store, { uncheckedFiles: check.unchecked, signal });
      const completed = await finishExport(ports, of.id, { to: 'COMPLETED', reason: null });
      // Cancelled, or out of time, at the last moment: its set is not said to be whole. Completed by another: it is.
      if (!completed && !(await isCompleted(ports, of.id))) await manifest.takeBack();
    } finally {
      await store.close();
    }
  } catch (err) {
    if (!isRunlakeError(err) || err.class !== 'caller') throw err;
    ports.logger.error({ err, exportId: of.id }, 'the manifest of a bulk export cannot be written');
    await finishExport(ports, of.id, { to: 'FAILED', reason: `The manifest cannot be written: ${textOf(err)}` });
  }
}

/** Nothing brings the file back: no retry. The export is FAILED; `errors` of the run, which stays COMPLETED, names the cause too. */
async function failExport(
  ports: WorkPorts,
  of: ExportRecord,
  { runId, error }: Extract<FilesCheck, { kind: 'gone' }>,
): Promise<void> {
  ports.logger.error({ err: error, exportId: of.id, runId }, 'a file of a bulk export is gone');
  const now = ports.now();
  const ended = await ports.database.transaction(async (tx) => {
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
  if (ended !== undefined) await enqueueWaiting(ports, ended);
}

async function isCompleted({ database }: Pick<WorkPorts, 'database'>, exportId: string): Promise<boolean> {
  const [of] = await database.query(`SELECT FROM bulk_exports WHERE id = $1 AND status = 'COMPLETED'`, [exportId]);
  return of !== undefined;
}
