import type { Sql } from '../../../infra/postgres/database.ts';
import { chosenColumns, pageWithin } from '../page-within.ts';
import type { Run, RunStatus } from './run.ts';
import { runColumns } from './run-row.ts';

export interface RunPage<Field extends keyof Run> {
  readonly limit: number;
  readonly offset: number;
  readonly status?: RunStatus;
  /** Default: all fields. */
  readonly select?: readonly Field[] | undefined;
  /** Default: as many as there are. */
  readonly limitBytes?: number;
}

/** Runs of a thread, newest first; none where there is no such thread. @throws ANSWER_TOO_LARGE */
export async function listRuns<Field extends keyof Run = keyof Run>(
  sql: Sql,
  deploymentId: string,
  threadId: string,
  { limit, offset, status, select, limitBytes }: RunPage<Field>,
): Promise<Pick<Run, Field>[]> {
  return pageWithin(
    sql,
    `SELECT ${chosenColumns(runColumns, select)} FROM agents.runs
     WHERE deployment_id = $1 AND thread_id = $2 AND NOT removed AND ($5::text IS NULL OR status = $5)
     ORDER BY place DESC LIMIT $3 OFFSET $4`,
    [deploymentId, threadId, limit, offset, status ?? null],
    limitBytes,
  );
}
