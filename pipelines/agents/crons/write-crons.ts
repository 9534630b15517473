import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { enforceLimit } from '../../tenants/enforce-limit.ts';
import { type ReadClock, readDatabaseClock } from '../due-clock.ts';
import { requireStorableJson } from '../threads/thread.ts';
import { type Cron, cronColumns, notifyCrons } from './cron.ts';
import { readSchedule } from './schedule.ts';

export type NewCron = Omit<Cron, 'cron_id' | 'next_run_date' | 'created_at' | 'updated_at'>;

const countCronsSql = 'SELECT count(*) AS there FROM agents.crons WHERE deployment_id = $1';

/**
 * Creates a cron. The cron fires for the first time at the next time of its schedule.
 *
 * @param maxCrons Maximum number of crons of the deployment.
 * @throws CRON_SCHEDULE_INVALID, CRON_TIMEZONE_UNKNOWN, CRON_LIMIT_REACHED, THREAD_NOT_FOUND, INVALID_REQUEST
 */
export async function createCron(
  database: Database,
  deploymentId: string,
  cron: NewCron,
  { maxCrons, now = readDatabaseClock }: { readonly maxCrons: number; readonly now?: ReadClock },
): Promise<Cron> {
  requireStorableJson(cron.metadata, ['body', 'metadata']);
  return database.transaction(async (tx) => {
    const next = nextRunDate(cron, await now(tx));
    if (cron.thread_id !== null) {
      // Lock the thread, so that it is not deleted before the cron exists. Afterwards, deleting the thread also deletes
      // the cron.
      const threads = await tx.query(
        `SELECT 1 FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden FOR KEY SHARE`,
        [deploymentId, cron.thread_id],
      );
      if (threads.length === 0) throw runlakeError('THREAD_NOT_FOUND', { thread: cron.thread_id });
    }
    const [created] = await tx.query<Cron>(
      `INSERT INTO agents.crons (deployment_id, cron_id, assistant_id, thread_id, schedule, timezone, end_time, next_run_date,
         on_run_completed, enabled, payload, metadata, user_id)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
       RETURNING ${cronColumns}`,
      [
        deploymentId,
        randomUUID(),
        cron.assistant_id,
        cron.thread_id,
        cron.schedule,
        cron.timezone,
        cron.end_time,
        next,
        cron.on_run_completed,
        cron.enabled,
        cron.payload,
        cron.metadata,
        cron.user_id,
      ],
    );
    await tx.execute(notifyCrons, [deploymentId]);
    await enforceLimit(tx, { deploymentId }, { most: maxCrons, count: countCronsSql }, () =>
      runlakeError('CRON_LIMIT_REACHED', { limit: maxCrons }),
    );
    return created as Cron;
  });
}

/**
 * Changes of a cron. Absent fields do not change. `payload` and `metadata` are merged with the stored values by field.
 */
type CronChanges = Partial<
  Pick<Cron, 'schedule' | 'timezone' | 'end_time' | 'on_run_completed' | 'enabled' | 'payload' | 'metadata'>
>;

/**
 * Changes a cron. If the schedule, time zone, end time or `enabled` changes, the cron fires next at the first fire time
 * after now; it skips fire times that it missed while it was disabled.
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

/** Deletes a cron. Runs that it has created are not affected. @throws CRON_NOT_FOUND */
export async function deleteCron(sql: Sql, deploymentId: string, cronId: string): Promise<void> {
  const deleted = await sql.execute('DELETE FROM agents.crons WHERE deployment_id = $1 AND cron_id = $2', [
    deploymentId,
    cronId,
  ]);
  if (deleted === 0) throw runlakeError('CRON_NOT_FOUND', { cron: cronId });
}

/**
 * Returns the next fire time of a cron after an instant, in ISO 8601; null if the cron is disabled or ends before that
 * time.
 *
 * @throws CRON_SCHEDULE_INVALID, CRON_TIMEZONE_UNKNOWN
 */
function nextRunDate(
  { schedule, timezone, end_time, enabled }: Pick<Cron, 'schedule' | 'timezone' | 'end_time' | 'enabled'>,
  afterMs: number,
): string | null {
  const next = readSchedule(schedule, timezone, afterMs).next(afterMs);
  if (!enabled || next === undefined || (end_time !== null && next > Date.parse(end_time))) return null;
  return new Date(next).toISOString();
}
