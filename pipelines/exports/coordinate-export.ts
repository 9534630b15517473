/**
 * Starts an export when its turn has come.
 *
 * Invariant: of a workspace no more exports are RUNNING than may be, and an export gets its runs exactly once, in the transaction
 * that makes it RUNNING.
 *
 *   1. What was accepted before it was made is stored: else wait for a while, then leave it to the sweep.
 *   2. Its workspace has room, by the row of the workspace, which is held: else it waits, and the end of another has it looked at.
 *   3. One run for each UTC day of its range; RUNNING.
 *   4. The first of its runs are queued.
 *
 * Called for one that is RUNNING, it does 4, and what is due when no run is left.
 */

import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { topics } from '../../schemas/topics.ts';
import { advanceExport } from './advance-export.ts';
import { dayWindows } from './day-windows.ts';
import { enqueueRun } from './enqueue.ts';
import { isProjectDeleted } from './export-places.ts';
import type { ExportPorts, WorkPorts } from './export-ports.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';
import { statesBefore } from './export-states.ts';
import { finishExport } from './finish-export.ts';
import { dueRuns } from './runs/due-runs.ts';

const askEveryMs = 100;
/** How long a look at an export waits for the log before it leaves that to the next. */
const usualPatienceMs = 10_000;

/** @throws what log, database and store throw; the sweep comes back to it. */
export async function coordinateExport(
  ports: WorkPorts,
  exportId: string,
  signal?: AbortSignal,
  patienceMs = usualPatienceMs,
): Promise<void> {
  const [of] = await ports.database.query<ExportRecord>(
    `SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = $1 AND interval_hours IS NULL`,
    [exportId],
  );
  if (of === undefined) return;
  if (of.status === 'CREATED') {
    if (!(await isLogStored(ports, of, signal, patienceMs))) return;
    if (await isProjectDeleted(ports.database, of)) {
      await finishExport(ports, exportId, { to: 'FAILED', reason: 'Its project was deleted.' });
      return;
    }
    if (!(await startExport(ports, of))) return;
  } else if (of.status !== 'RUNNING') return;
  for (const run of await dueRuns(ports.database, ports.limits, ports.now(), { exportId }))
    await enqueueRun(ports, run);
  if (of.status === 'RUNNING') await advanceExport(ports, exportId);
}

async function isLogStored(
  { log }: ExportPorts,
  { logPosition }: ExportRecord,
  signal: AbortSignal | undefined,
  patienceMs: number,
): Promise<boolean> {
  const endMs = performance.now() + patienceMs;
  for (const [name, position] of Object.entries(logPosition ?? {})) {
    const topic = topics.find((each) => each.name === name);
    if (topic === undefined) continue;
    while (!(await log.stored(topic, position))) {
      if (signal?.aborted || performance.now() >= endMs) return false;
      await pause(askEveryMs);
    }
  }
  return true;
}

async function startExport({ database, limits, now }: ExportPorts, of: ExportRecord): Promise<boolean> {
  const windows = dayWindows(of.startTime, of.endTime as string);
  const at = now().toISOString();
  return database.transaction(async (tx) => {
    // Held by each that starts an export here, so that they count one after the other.
    await tx.query('SELECT FROM workspaces WHERE id = $1 FOR NO KEY UPDATE', [of.workspaceId]);
    const [{ running } = { running: 0 }] = await tx.query<{ running: number }>(
      `SELECT count(*) AS running FROM bulk_exports
       WHERE workspace_id = $1 AND status = 'RUNNING' AND interval_hours IS NULL`,
      [of.workspaceId],
    );
    if (running >= limits.exportsPerWorkspace) {
      const reason = `It waits until fewer than ${limits.exportsPerWorkspace} exports of its workspace are running.`;
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
