import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Milliseconds until the next run becomes due, among the first pending runs of threads without a running run; 0 or less
 * if one became due in the last `sinceMs`. Undefined if there is none. Meant for a process that has free slots and
 * claimed nothing: runs that have been due for longer are locked by other processes.
 */
export async function nextDue(database: Sql, deploymentId: string, sinceMs: number): Promise<number | undefined> {
  const [row] = await database.query<{ ms: number | null }>(
    `SELECT (extract(epoch FROM least(
       (SELECT min(next_due_at) FROM agents.threads
        WHERE deployment_id = $1 AND next_caller_id IS NULL AND next_due_at > now() - $2 * interval '1 millisecond'),
       (SELECT min(next_due_at) FROM agents.threads
        WHERE deployment_id = $1 AND next_caller_id IS NOT NULL AND next_due_at > now() - $2 * interval '1 millisecond')
     ) - now()) * 1000)::float8 AS ms`,
    [deploymentId, sinceMs],
    { name: 'agents_next_due' },
  );
  return row?.ms ?? undefined;
}
