import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Counts the pending and running runs of all processes. Two subqueries, so that each uses the partial index of its status.
 */
export async function countUnfinishedRuns(
  sql: Sql,
  deploymentId: string,
): Promise<{ readonly pending: number; readonly running: number }> {
  const [row] = await sql.query<{ pending: number; running: number }>(
    `SELECT
       (SELECT count(*)::int FROM agents.runs WHERE deployment_id = $1 AND status = 'pending') AS pending,
       (SELECT count(*)::int FROM agents.runs WHERE deployment_id = $1 AND status = 'running') AS running`,
    [deploymentId],
    { name: 'agents_count_unfinished' },
  );
  return row!;
}
