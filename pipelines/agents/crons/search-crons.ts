import type { Sql } from '../../../infra/postgres/database.ts';
import { pageWithin, selectedColumns } from '../page-within.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import { type Cron, cronColumns } from './cron.ts';

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

export interface CronPage {
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
