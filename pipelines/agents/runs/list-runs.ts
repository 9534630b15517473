import type { Sql } from '../../../infra/postgres/database.ts';
import { pageWithin, selectedColumns } from '../page-within.ts';
import type { Run, RunStatus } from './run.ts';
import { runColumns } from './run-row.ts';

export interface RunPage<Field extends keyof Run> {
  readonly limit: number;
  readonly offset: number;
  readonly status?: RunStatus;
  /** Default: all fields. */
  readonly select?: readonly Field[] | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/** Lists the runs of a thread, newest first; empty if the thread does not exist. @throws ANSWER_TOO_LARGE */
export async function listRuns<Field extends keyof Run = keyof Run>(
  sql: Sql,
  deploymentId: string,
  threadId: string,
  { limit, offset, status, select, limitBytes }: RunPage<Field>,
): Promise<Pick<Run, Field>[]> {
  return pageWithin(
    sql,
    `SELECT ${selectedColumns(runColumns, select)} FROM agents.runs
     WHERE deployment_id = $1 AND thread_id = $2 AND NOT removed AND ($5::text IS NULL OR status = $5)
     ORDER BY queue_position DESC LIMIT $3 OFFSET $4`,
    [deploymentId, threadId, limit, offset, status ?? null],
    limitBytes,
  );
}
