/**
 * Starts an export when its preconditions hold.
 *
 * Invariant: at most `exportsPerWorkspace` exports of a workspace are RUNNING, and an export gets its export runs
 * exactly once, in the transaction that makes it RUNNING.
 *
 *   1. Everything that the log accepted before the export was created must be stored. If it is not stored within the
 *      timeout, the sweep tries again.
 *   2. The workspace must be below its limit, which is checked under a lock on the workspace row. Otherwise the export
 *      waits until another export of the workspace ends.
 *   3. One export run is created for each UTC day of the range, and the export becomes RUNNING.
 *   4. The first export runs are queued.
 *
 * For an export that is already RUNNING, only step 4 is done, and the export is ended if no export run is left.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { topics } from '../../schemas/topics.ts';
import { advanceExport } from './advance-export.ts';
import { dayWindows } from './day-windows.ts';
import { enqueueRun } from './enqueue.ts';
import type { ExportDeps, WorkDeps } from './export-deps.ts';
import { isProjectDeleted } from './export-locations.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';
import { statesBefore } from './export-states.ts';
import { finishExport } from './finish-export.ts';
import { dueRuns } from './runs/due-runs.ts';

const pollIntervalMs = 100;
/** How long one call waits for the log; later calls try again. */
const defaultLogTimeoutMs = 10_000;

/** @throws errors of the log, the database and the object store; the sweep then calls this again. */
export async function coordinateExport(
  deps: WorkDeps,
  exportId: string,
  signal?: AbortSignal,
  logTimeoutMs = defaultLogTimeoutMs,
): Promise<void> {
  const [of] = await deps.database.query<ExportRecord>(
    `SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1 AND interval_hours IS NULL`,
    [exportId],
  );
  if (of === undefined) return;
  if (of.status === 'CREATED') {
    if (!(await isLogStored(deps, of, signal, logTimeoutMs))) return;
    if (await isProjectDeleted(deps.database, of)) {
      await finishExport(deps, exportId, { to: 'FAILED', reason: 'Its project was deleted.' });
      return;
    }
    if (!(await startExport(deps, of))) return;
  } else if (of.status !== 'RUNNING') return;
  for (const run of await dueRuns(deps.database, deps.limits, deps.now(), { exportId })) await enqueueRun(deps, run);
  if (of.status === 'RUNNING') await advanceExport(deps, exportId);
}

async function isLogStored(
  { log }: ExportDeps,
  { logPosition }: ExportRecord,
  signal: AbortSignal | undefined,
  logTimeoutMs: number,
): Promise<boolean> {
  const endMs = performance.now() + logTimeoutMs;
  for (const [name, position] of Object.entries(logPosition ?? {})) {
    const topic = topics.find((each) => each.name === name);
    if (topic === undefined) continue;
    while (!(await log.stored(topic, position))) {
      if (signal?.aborted || performance.now() >= endMs) return false;
      await pause(pollIntervalMs);
    }
  }
  return true;
}

async function startExport({ database, limits, now }: ExportDeps, of: ExportRecord): Promise<boolean> {
  const windows = dayWindows(of.startTime, of.endTime as string);
  const at = now().toISOString();
  return database.transaction(async (tx) => {
    // Every start of an export locks this row, so that starts in one workspace are counted one after the other.
    await tx.query('SELECT FROM workspaces WHERE id = $1 FOR NO KEY UPDATE', [of.workspaceId]);
    const [{ running } = { running: 0 }] = await tx.query<{ running: number }>(
      `SELECT count(*) AS running FROM bulk_exports
       WHERE workspace_id = $1 AND status = 'RUNNING' AND interval_hours IS NULL`,
      [of.workspaceId],
    );
    if (running >= limits.exportsPerWorkspace) {
      const reason = `Waiting until fewer than ${limits.exportsPerWorkspace} exports of the workspace are running.`;
      await tx.execute(
        `UPDATE bulk_exports SET status_reason = $2, updated_at = $3
         WHERE id = $1 AND status = 'CREATED' AND status_reason IS DISTINCT FROM $2`,
        [of.id, reason, at],
      );
      return false;
    }
    const started = await tx.execute(
      `UPDATE bulk_exports SET status = 'RUNNING', status_reason = NULL, started_at = $2, updated_at = $2
       WHERE id = $1 AND status = ANY ($3)`,
      [of.id, at, statesBefore('export', 'RUNNING')],
    );
    if (started === 0) return false;
    await tx.execute(
      `INSERT INTO bulk_export_runs (id, bulk_export_id, workspace_id, start_time, end_time, status, next_attempt_at,
         created_at, updated_at)
       SELECT id, $1, $2, start_time, end_time, 'CREATED', $3, $3, $3
       FROM unnest($4::uuid[], $5::timestamptz[], $6::timestamptz[]) AS window_of_day (id, start_time, end_time)`,
      [
        of.id,
        of.workspaceId,
        at,
        windows.map(() => randomUUID()),
        windows.map(({ start }) => start),
        windows.map(({ end }) => end),
      ],
    );
    return true;
  });
}
