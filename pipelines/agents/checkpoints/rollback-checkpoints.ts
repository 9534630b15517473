import type { Sql } from '../../../infra/postgres/database.ts';

/** Deletes what a run wrote to its thread and restores what it replaced, by `agents.rollback_checkpoints`. */
export async function rollbackCheckpoints(sql: Sql, key: string, runId: string): Promise<void> {
  await sql.query('SELECT agents.rollback_checkpoints($1, $2)', [key, runId], { name: 'agents_rollback_checkpoints' });
}
