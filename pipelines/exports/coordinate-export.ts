import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { topics } from '../../schemas/topics.ts';
import { enqueueRun } from './enqueue.ts';
import type { ExportDeps, WorkDeps } from './export-deps.ts';
import { isProjectDeleted } from './export-locations.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';
import { statesBefore } from './export-states.ts';
import { endExport, enqueueWaiting, finishExport } from './finish-export.ts';
import { type FilesCheck, verifyFiles, writeManifest } from './manifest.ts';
import { textOf } from './runs/end-attempt.ts';
import { dueRuns } from './runs/run-record.ts';
import { spawnDue } from './schedules.ts';

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

/** One UTC day of a range, clipped to the range, half-open. ISO 8601 with microseconds. */
interface DayWindow {
  readonly start: string;
  readonly end: string;
}

const dayMs = 86_400_000;

/**
 * Splits a half-open range into UTC days without gaps or overlap; the first and the last day are clipped to the range.
 * UTC has no daylight saving time, so each day has 24 hours. Times are ISO 8601 in UTC and keep their microseconds.
 */
export function dayWindows(start: string, end: string): DayWindow[] {
  const windows: DayWindow[] = [];
  let from = start;
  for (let dayEnd = (Math.floor(Date.parse(start) / dayMs) + 1) * dayMs; from !== end; dayEnd += dayMs) {
    const midnight = new Date(dayEnd).toISOString().replace('.000Z', '.000000Z');
    const until = midnight < end ? midnight : end;
    windows.push({ start: from, end: until });
    from = until;
  }
  return windows;
}

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
