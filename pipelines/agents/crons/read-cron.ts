import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { type Cron, cronColumns } from './cron.ts';

/** Reads a cron. @throws CRON_NOT_FOUND */
export async function readCron(sql: Sql, deploymentId: string, cronId: string): Promise<Cron> {
  const [cron] = await sql.query<Cron>(
    `SELECT ${cronColumns} FROM agents.crons WHERE deployment_id = $1 AND cron_id = $2`,
    [deploymentId, cronId],
  );
  if (cron === undefined) throw runlakeError('CRON_NOT_FOUND', { cron: cronId });
  return cron;
}
