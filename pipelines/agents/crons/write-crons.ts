import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { requireStorableJson } from '../../../infra/json/json-value.ts';
import { type ReadClock, readDatabaseClock } from '../../../infra/postgres/clock.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { createOrFind } from '../../../infra/postgres/database-error.ts';
import { buildSelectList, queryPageWithinLimit } from '../../../infra/postgres/page-within.ts';
import { enforceLimit } from '../../tenants/enforce-limit.ts';
import { readSchedule } from './schedule.ts';

export type NewCron = Omit<Cron, 'cron_id' | 'next_run_date' | 'created_at' | 'updated_at'>;

const countCronsSql = 'SELECT count(*) AS count FROM agents.crons WHERE deployment_id = $1';

/**
 * Creates a cron. The cron fires for the first time at the next fire time of its schedule.
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
  const cronId = randomUUID();
  const create = async (tx: Sql) => {
    const next = computeNextRunDate(cron, await now(tx));
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
        cronId,
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
    await tx.execute(notifyCronsSql, [deploymentId]);
    await enforceLimit(tx, 'deployment', deploymentId, {
      max: maxCrons,
      countSql: countCronsSql,
      createError: () => runlakeError('CRON_LIMIT_REACHED', { limit: maxCrons }),
    });
    return created as Cron;
  };
  return createOrFind(
    () => database.transaction(create),
    () => findCron(database, deploymentId, cronId),
  );
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
    const mustReschedule = (['schedule', 'timezone', 'end_time', 'enabled'] as const).some(
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
        mustReschedule ? computeNextRunDate(changed, await now(tx)) : current.next_run_date,
        changed.on_run_completed,
        changed.enabled,
        changed.payload,
        changed.metadata,
      ],
    );
    await tx.execute(notifyCronsSql, [deploymentId]);
    return updated as Cron;
  });
}

/** Disables a cron, unless its schedule or time zone has changed since it was read. */
export async function disableCron(
  sql: Sql,
  deploymentId: string,
  { cron_id, schedule, timezone }: Pick<Cron, 'cron_id' | 'schedule' | 'timezone'>,
): Promise<void> {
  await sql.execute(
    `UPDATE agents.crons SET enabled = false, next_run_date = NULL, updated_at = now()
     WHERE deployment_id = $1 AND cron_id = $2 AND schedule = $3 AND timezone IS NOT DISTINCT FROM $4`,
    [deploymentId, cron_id, schedule, timezone],
  );
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
function computeNextRunDate(
  { schedule, timezone, end_time, enabled }: Pick<Cron, 'schedule' | 'timezone' | 'end_time' | 'enabled'>,
  afterMs: number,
): string | null {
  const next = readSchedule(schedule, timezone, afterMs).next(afterMs);
  if (!enabled || next === undefined || (end_time !== null && next > Date.parse(end_time))) return null;
  return new Date(next).toISOString();
}

export const onRunCompleted = ['delete', 'keep'] as const;
type OnRunCompleted = (typeof onRunCompleted)[number];

/** A cron, with its field names on the wire. Source: LangGraph Platform API, Cron. */
export interface Cron {
  readonly cron_id: string;
  readonly assistant_id: string;
  /** The thread of all runs. If null, each run gets a new thread. */
  readonly thread_id: string | null;
  /** Cron expression with five fields. */
  readonly schedule: string;
  /** IANA time zone name. If null, the time zone is UTC. */
  readonly timezone: string | null;
  /** Last instant at which the cron can fire. If null, the cron does not end. */
  readonly end_time: string | null;
  /** Next fire time; null if the cron does not fire again, because it has ended or is disabled. */
  readonly next_run_date: string | null;
  /** What happens to the thread of each run after the run; null if all runs use `thread_id`. */
  readonly on_run_completed: OnRunCompleted | null;
  readonly enabled: boolean;
  /** Body of the request that creates a run. */
  readonly payload: Readonly<Record<string, unknown>>;
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly user_id: string | null;
  readonly created_at: string;
  readonly updated_at: string;
}

export const cronFields = [
  'cron_id',
  'assistant_id',
  'thread_id',
  'schedule',
  'timezone',
  'end_time',
  'next_run_date',
  'on_run_completed',
  'enabled',
  'payload',
  'metadata',
  'user_id',
  'created_at',
  'updated_at',
] as const satisfies readonly (keyof Cron)[];

/** The columns of a {@link Cron}. Each column has the name of its field. */
export const cronColumns = cronFields.join(', ');

/**
 * Statement that notifies the processes of deployment $1, at commit, that the next fire time of a cron may have
 * changed.
 */
const notifyCronsSql = "SELECT pg_notify('agent_crons', $1)";

/** Reads a cron. @throws CRON_NOT_FOUND */
export async function readCron(sql: Sql, deploymentId: string, cronId: string): Promise<Cron> {
  const cron = await findCron(sql, deploymentId, cronId);
  if (cron === undefined) throw runlakeError('CRON_NOT_FOUND', { cron: cronId });
  return cron;
}

async function findCron(sql: Sql, deploymentId: string, cronId: string): Promise<Cron | undefined> {
  const [cron] = await sql.query<Cron>(
    `SELECT ${cronColumns} FROM agents.crons WHERE deployment_id = $1 AND cron_id = $2`,
    [deploymentId, cronId],
  );
  return cron;
}

export interface CronFilter {
  readonly assistantId?: string | undefined;
  readonly threadId?: string | undefined;
  readonly enabled?: boolean | undefined;
  /** Members that the metadata must contain. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
}

export const cronSortFields = [
  'cron_id',
  'assistant_id',
  'thread_id',
  'next_run_date',
  'end_time',
  'created_at',
  'updated_at',
] as const;

interface CronPage {
  readonly sortBy: (typeof cronSortFields)[number];
  readonly sortOrder: 'asc' | 'desc';
  readonly limitRows: number;
  readonly offsetRows: number;
  /** Fields to return. Default: all fields. */
  readonly select?: readonly string[] | null | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

const filterCondition = `deployment_id = $1 AND ($2::uuid IS NULL OR assistant_id = $2) AND ($3::uuid IS NULL OR thread_id = $3)
  AND ($4::boolean IS NULL OR enabled = $4) AND metadata @> $5`;

function buildFilterParams(deploymentId: string, { assistantId, threadId, enabled, metadata = {} }: CronFilter) {
  requireStorableJson(metadata, ['body', 'metadata']);
  return [deploymentId, assistantId ?? null, threadId ?? null, enabled ?? null, metadata];
}

/**
 * Returns one page of the crons that match `filter`. Crons whose `sortBy` field is null come last.
 *
 * @throws ANSWER_TOO_LARGE
 */
export async function searchCrons(
  sql: Sql,
  deploymentId: string,
  filter: CronFilter,
  { sortBy, sortOrder, limitRows, offsetRows, select, limitBytes }: CronPage,
): Promise<readonly Partial<Cron>[]> {
  return queryPageWithinLimit<Partial<Cron>>(
    sql,
    `SELECT ${buildSelectList(cronColumns, select)} FROM agents.crons WHERE ${filterCondition}
     ORDER BY ${sortBy} ${sortOrder} NULLS LAST, cron_id LIMIT $6 OFFSET $7`,
    [...buildFilterParams(deploymentId, filter), limitRows, offsetRows],
    limitBytes,
  );
}

export async function countCrons(sql: Sql, deploymentId: string, filter: CronFilter): Promise<number> {
  const [row] = await sql.query<{ crons: number }>(
    `SELECT count(*) AS crons FROM agents.crons WHERE ${filterCondition}`,
    buildFilterParams(deploymentId, filter),
  );
  return row?.crons ?? 0;
}
