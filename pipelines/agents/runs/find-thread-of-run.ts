import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';

/** Returns the id of the thread of a run. @throws RUN_NOT_FOUND */
export async function findThreadOfRun(sql: Sql, deploymentId: string, runId: string): Promise<string> {
  const [row] = await sql.query<{ thread_id: string }>(
    'SELECT thread_id FROM agents.runs WHERE deployment_id = $1 AND run_id = $2',
    [deploymentId, runId],
  );
  if (row === undefined) throw runlakeError('RUN_NOT_FOUND', { run: runId });
  return row.thread_id;
}
