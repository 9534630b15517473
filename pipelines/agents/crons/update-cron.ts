import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { type ReadClock, readDatabaseClock } from '../due-clock.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import { type Cron, cronColumns, notifyCrons } from './cron.ts';
import { nextRunDate } from './next-run-date.ts';

/** Absent fields do not change. `payload` and `metadata` are merged with the stored ones, field by field. */
export type CronChanges = Partial<
  Pick<Cron, 'schedule' | 'timezone' | 'end_time' | 'on_run_completed' | 'enabled' | 'payload' | 'metadata'>
>;

/**
 * Changes a cron. If the schedule, time zone, end time or `enabled` changes, it fires next at the first fire time after
 * now; times that it missed while it was disabled are skipped.
 *
 * @throws CRON_NOT_FOUND, CRON_SCHEDULE_INVALID, CRON_TIMEZONE_UNKNOWN, INVALID_REQUEST
 */
export async function updateCron(
  database: Database,
  deploymentId: string,
  cronId: string,
  changes: CronChanges,
  now: ReadClock = readDatabaseClock,
): Promise<Cron> {
  requireStorableJson(changes.metadata ?? {}, ['body', 'metadata']);
  return database.transaction(async (tx) => {
    const [current] = await tx.query<Cron>(
      `SELECT ${cronColumns} FROM agents.crons WHERE deployment_id = $1 AND cron_id = $2 FOR UPDATE`,
      [deploymentId, cronId],
    );
    if (current === undefined) throw runlakeError('CRON_NOT_FOUND', { cron: cronId });
    const changed: Cron = {
      ...current,
      ...changes,
      payload: { ...current.payload, ...changes.payload },
      metadata: { ...current.metadata, ...changes.metadata },
    };
    const reschedules = (['schedule', 'timezone', 'end_time', 'enabled'] as const).some(
      (field) => changed[field] !== current[field],
    );
    const [updated] = await tx.query<Cron>(
      `UPDATE agents.crons SET schedule = $3, timezone = $4, end_time = $5, next_run_date = $6, on_run_completed = $7,
         enabled = $8, payload = $9, metadata = $10, updated_at = now()
       WHERE deployment_id = $1 AND cron_id = $2 RETURNING ${cronColumns}`,
      [
        deploymentId,
        cronId,
        changed.schedule,
        changed.timezone,
        changed.end_time,
        reschedules ? nextRunDate(changed, await now(tx)) : current.next_run_date,
        changed.on_run_completed,
        changed.enabled,
        changed.payload,
        changed.metadata,
      ],
    );
    await tx.execute(notifyCrons, [deploymentId]);
    return updated as Cron;
  });
}
