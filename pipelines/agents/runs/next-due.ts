import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Milliseconds until the next run is due of those that no other run of their thread keeps back; 0 or less where one is due already.
 * Undefined where there is none.
 */
export async function nextDue(database: Sql, deploymentId: string): Promise<number | undefined> {
  const [row] = await database.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM min(next_due_at) - clock_timestamp()) * 1000)::float8 AS ms FROM agents.threads
     WHERE deployment_id = $1 AND next_due_at IS NOT NULL`,
    [deploymentId],
    { name: 'agents_next_due' },
  );
  return row?.ms ?? undefined;
}
