import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Run } from './run.ts';
import { type RunRow, runColumns } from './run-row.ts';

/** Reads a run; its thread can be hidden. @throws RUN_NOT_FOUND */
export async function readRun(
  sql: Sql,
  deploymentId: string,
  { threadId, runId }: { readonly threadId: string; readonly runId: string },
): Promise<Run> {
  const [run] = await sql.query<RunRow>(
    `SELECT ${runColumns} FROM agents.runs
     WHERE deployment_id = $1 AND thread_id = $2 AND run_id = $3 AND NOT removed`,
    [deploymentId, threadId, runId],
    { name: 'agents_read_run' },
  );
  if (run === undefined) throw runlakeError('RUN_NOT_FOUND', { run: runId });
  return run;
}
