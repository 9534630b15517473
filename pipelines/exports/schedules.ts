/**
 * Schedules: exports that spawn others, one for each interval.
 *
 * Invariant: the intervals of a schedule follow each other without a gap, and each is spawned exactly once, also after
 * crashes: one transaction that locks the schedule's row inserts the new export and advances the schedule to the next
 * interval.
 *
 *   1. An interval is due a fixed delay after its end (SPEC 4.3 rule 4).
 *   2. On time: the export is spawned even if the previous one is unfinished.
 *   3. Behind (the following interval is due as well): the export is spawned only if no other export of the schedule is
 *      unfinished. After a downtime the intervals are therefore caught up one at a time, oldest first.
 *   4. If the project is deleted, the schedule becomes FAILED.
 */
import { randomUUID } from 'node:crypto';
import { formatTimeWithZone } from '../ingest/run-event/times.ts';
import { insertExport, readLogEndOffsets } from './create-export.ts';
import { enqueueExport } from './enqueue.ts';
import { clockSkewMs, type ExportDeps } from './export-deps.ts';
import { isProjectDeleted, microsOf } from './export-locations.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';
import { finishExport } from './finish-export.ts';

const hourMicros = 3_600_000_000;

/** Spawns all due exports of one schedule, or of all schedules. @throws errors of the log and the database. */
export async function spawnDue(deps: ExportDeps, scheduleId?: string): Promise<void> {
  const due = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_exports
     WHERE interval_hours IS NOT NULL AND status = 'RUNNING' AND ($1::uuid IS NULL OR id = $1)
       AND next_start_time + make_interval(hours => interval_hours) <= $2
     ORDER BY next_start_time, id`,
    [scheduleId ?? null, lastDueEnd(deps)],
  );
  for (const { id } of due) {
    while ((await spawnNext(deps, id)) === 'spawned');
  }
}

/** Intervals that end at this time or earlier are due. */
function lastDueEnd({ now, limits }: ExportDeps): string {
  return new Date(now().getTime() - limits.exportScheduleDelayMs).toISOString();
}

async function spawnNext(deps: ExportDeps, scheduleId: string): Promise<'spawned' | 'not due'> {
  const { database } = deps;
  const createdAt = deps.now();
  const logPosition = await readLogEndOffsets(deps);
  const outcome = await database.transaction(async (tx) => {
    const [schedule] = await tx.query<ExportRecord & { createdByKeyId: string | null; behind: boolean; busy: boolean }>(
      `SELECT ${exportColumns}, e.created_by_key_id AS "createdByKeyId",
         e.next_start_time + make_interval(hours => 2 * e.interval_hours) <= $2 AS behind,
         EXISTS (SELECT FROM bulk_exports AS s WHERE s.source_bulk_export_id = e.id AND s.finished_at IS NULL) AS busy
       FROM bulk_exports AS e
       WHERE id = $1 AND status = 'RUNNING' AND next_start_time + make_interval(hours => interval_hours) <= $2
       FOR UPDATE OF e`,
      [scheduleId, lastDueEnd(deps)],
    );
    if (schedule === undefined || (schedule.behind && schedule.busy)) return 'not due';
    if (await isProjectDeleted(tx, schedule)) return 'no project';
    const startTime = schedule.nextStartTime as string;
    const endTime = formatTimeWithZone(microsOf(startTime) + (schedule.intervalHours as number) * hourMicros);
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
      sourceExportId: schedule.id,
      logPosition,
      createdAt,
      membersUntil: new Date(createdAt.getTime() + clockSkewMs),
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
