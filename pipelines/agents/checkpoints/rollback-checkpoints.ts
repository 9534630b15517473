import type { Sql } from '../../../infra/postgres/database.ts';

/** Deletes the checkpoints and writes of a run and restores those that it replaced. `key` is a key of `thread-key.ts`. */
export async function rollbackCheckpoints(sql: Sql, key: string, runId: string): Promise<void> {
  await sql.query('SELECT agents.rollback_checkpoints($1, $2)', [key, runId], { name: 'agents_rollback_checkpoints' });
}
