import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';

/** Deletes a cron. Runs that it has created are not affected. @throws CRON_NOT_FOUND */
export async function deleteCron(sql: Sql, deploymentId: string, cronId: string): Promise<void> {
  const deleted = await sql.execute('DELETE FROM agents.crons WHERE deployment_id = $1 AND cron_id = $2', [
    deploymentId,
    cronId,
  ]);
  if (deleted === 0) throw runlakeError('CRON_NOT_FOUND', { cron: cronId });
}
