import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { pageWithin, selectedColumns } from '../page-within.ts';
import { requireStorableJson } from '../threads/thread.ts';

/** A cron, with its field names on the wire. Source: reference `agent-server.md` 1.1 and 6; openapi/agent-server.json. */

export const onRunCompleted = ['delete', 'keep'] as const;
type OnRunCompleted = (typeof onRunCompleted)[number];

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

/** Notifies the processes of deployment $1, at commit, that the next fire time of a cron may have changed. */
export const notifyCrons = "SELECT pg_notify('agent_crons', $1)";

/** Reads a cron. @throws CRON_NOT_FOUND */
export async function readCron(sql: Sql, deploymentId: string, cronId: string): Promise<Cron> {
  const [cron] = await sql.query<Cron>(
    `SELECT ${cronColumns} FROM agents.crons WHERE deployment_id = $1 AND cron_id = $2`,
    [deploymentId, cronId],
  );
  if (cron === undefined) throw runlakeError('CRON_NOT_FOUND', { cron: cronId });
  return cron;
}

export interface CronFilter {
  readonly assistantId?: string | undefined;
  readonly threadId?: string | undefined;
  readonly enabled?: boolean | undefined;
  /** Members that the metadata must contain. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
}

export const cronSorts = [
  'cron_id',
  'assistant_id',
  'thread_id',
  'next_run_date',
  'end_time',
  'created_at',
  'updated_at',
] as const;

interface CronPage {
  readonly sortBy: (typeof cronSorts)[number];
  readonly sortOrder: 'asc' | 'desc';
  readonly limitRows: number;
  readonly offsetRows: number;
  /** Default: all fields. */
  readonly select?: readonly string[] | null | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

const conditions = `deployment_id = $1 AND ($2::uuid IS NULL OR assistant_id = $2) AND ($3::uuid IS NULL OR thread_id = $3)
  AND ($4::boolean IS NULL OR enabled = $4) AND metadata @> $5`;

function filterParams(deploymentId: string, { assistantId, threadId, enabled, metadata = {} }: CronFilter) {
  requireStorableJson(metadata, ['body', 'metadata']);
  return [deploymentId, assistantId ?? null, threadId ?? null, enabled ?? null, metadata];
}

/** Returns one page of the crons that match `filter`, with nulls of `sortBy` last. @throws ANSWER_TOO_LARGE */
export async function searchCrons(
  sql: Sql,
  deploymentId: string,
  filter: CronFilter,
  { sortBy, sortOrder, limitRows, offsetRows, select, limitBytes }: CronPage,
): Promise<readonly Partial<Cron>[]> {
  return pageWithin<Partial<Cron>>(
    sql,
    `SELECT ${selectedColumns(cronColumns, select)} FROM agents.crons WHERE ${conditions}
     ORDER BY ${sortBy} ${sortOrder} NULLS LAST, cron_id LIMIT $6 OFFSET $7`,
    [...filterParams(deploymentId, filter), limitRows, offsetRows],
    limitBytes,
  );
}

/** Counts the crons that match `filter`. */
export async function countCrons(sql: Sql, deploymentId: string, filter: CronFilter): Promise<number> {
  const [row] = await sql.query<{ crons: number }>(
    `SELECT count(*) AS crons FROM agents.crons WHERE ${conditions}`,
    filterParams(deploymentId, filter),
  );
  return row?.crons ?? 0;
}
