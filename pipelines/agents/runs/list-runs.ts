import type { Sql } from '../../../infra/postgres/database.ts';
import type { Run, RunStatus } from './run.ts';
import { type RunRow, runColumns } from './run-row.ts';

/** Runs of a thread, newest first; none where there is no such thread. */
export async function listRuns(
  sql: Sql,
  organizationId: string,
  threadId: string,
  { limit, offset, status }: { readonly limit: number; readonly offset: number; readonly status?: RunStatus },
): Promise<Run[]> {
  return sql.query<RunRow>(
    `SELECT ${runColumns} FROM agents.runs
     WHERE organization_id = $1 AND thread_id = $2 AND NOT removed AND ($5::text IS NULL OR status = $5)
     ORDER BY place DESC LIMIT $3 OFFSET $4`,
    [organizationId, threadId, limit, offset, status ?? null],
  );
}
