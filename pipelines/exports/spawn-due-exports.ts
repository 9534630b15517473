/**
 * Spawns the exports of schedules.
 *
 * Invariant: the intervals of a schedule have no gaps, and each interval is spawned exactly once: one transaction locks
 * the schedule's row, inserts the new export and advances the schedule.
 */
import { randomUUID } from 'node:crypto';
import { formatTimeWithZone } from '../ingest/run-event/times.ts';
import { insertExport, readLogEndOffsets } from './create-cancel.ts';
import { type ExportDeps, readClock } from './export-deps.ts';
import { type ExportRecord, exportColumns, isProjectDeleted, parseMicros } from './record.ts';
import { enqueueExport, finishExport } from './states.ts';

const hourMicros = 3_600_000_000;

/**
 * Spawns all due exports of one schedule or of all schedules.
 *
 *   1. An interval is due a fixed delay after its end.
 *   2. If the schedule is on time, the export is created even if the previous export is unfinished.
 *   3. If the schedule has fallen behind (the following interval is also due), the export is created only if no other
 *      export of the schedule is unfinished. Therefore the schedule catches up one interval at a time after a
 *      downtime, oldest first.
 *   4. If the project was deleted, the schedule becomes FAILED.
 *
 * @throws errors of the log and the database.
 */
export async function spawnDueExports(deps: ExportDeps, scheduleId?: string): Promise<void> {
  const due = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_exports WHERE interval_hours IS NOT NULL AND status = 'RUNNING' AND ($1::uuid IS NULL OR id = $1)
       AND next_start_time + make_interval(hours => interval_hours) <= $2
     ORDER BY next_start_time, id`,
    [scheduleId ?? null, computeLastDueEnd(deps, await readClock(deps))],
  );
  for (const { id } of due) {
    while ((await spawnNextExport(deps, id)) === 'spawned');
  }
}

/** Returns the latest end of an interval that is due. */
function computeLastDueEnd({ limits }: ExportDeps, now: Date): string {
  return new Date(now.getTime() - limits.exportScheduleDelayMs).toISOString();
}

async function spawnNextExport(deps: ExportDeps, scheduleId: string): Promise<'spawned' | 'not due'> {
  const { database } = deps;
  const createdAt = await readClock(deps);
  const logPosition = await readLogEndOffsets(deps);
  const outcome = await database.transaction(async (tx) => {
    const [schedule] = await tx.query<ExportRecord & { createdByKeyId: string | null; behind: boolean; busy: boolean }>(
      `SELECT ${exportColumns}, e.created_by_key_id AS "createdByKeyId",
         e.next_start_time + make_interval(hours => 2 * e.interval_hours) <= $2 AS behind,
         EXISTS (SELECT FROM bulk_exports AS s WHERE s.source_bulk_export_id = e.id AND s.finished_at IS NULL) AS busy
       FROM bulk_exports AS e
       WHERE id = $1 AND status = 'RUNNING' AND next_start_time + make_interval(hours => interval_hours) <= $2
       FOR UPDATE OF e`,
      [scheduleId, computeLastDueEnd(deps, createdAt)],
    );
    if (schedule === undefined || (schedule.behind && schedule.busy)) return 'not due';
    if (await isProjectDeleted(tx, schedule)) return 'no project';
    const startTime = schedule.nextStartTime as string;
    const endTime = formatTimeWithZone(parseMicros(startTime) + (schedule.intervalHours as number) * hourMicros);
    const id = randomUUID();
    const added = await insertExport(tx, {
      id,
      workspaceId: schedule.workspaceId,
      destinationId: schedule.destinationId,
      projectId: schedule.projectId,
      createdByKeyId: schedule.createdByKeyId,
      startTime,
      endTime,
      intervalHours: null,
      formatVersion: schedule.formatVersion,
      compression: schedule.compression,
      exportFields: schedule.exportFields,
      filter: schedule.filter,
      sourceExportId: schedule.id,
      logPosition,
      createdAt,
    });
    await tx.execute('UPDATE bulk_exports SET next_start_time = $2, updated_at = $3 WHERE id = $1', [
      scheduleId,
      endTime,
      createdAt.toISOString(),
    ]);
    return added ? { id } : 'spawned';
  });
  if (outcome === 'no project') {
    await finishExport(deps, scheduleId, { to: 'FAILED', reason: 'Its project was deleted.' });
    return 'not due';
  }
  if (typeof outcome === 'string') return outcome;
  await enqueueExport(deps, outcome.id);
  return 'spawned';
}
