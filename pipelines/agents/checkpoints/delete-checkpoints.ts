import type { Sql } from '../../../infra/postgres/database.ts';

/** Deletes all checkpoints of threads, with their blobs and writes. `keys` are keys of `thread-key.ts`. */
export async function deleteCheckpoints(sql: Sql, keys: readonly string[]): Promise<void> {
  if (keys.length === 0) return;
  await sql.execute(deletion, [keys], { name: 'agents_delete_threads_checkpoints' });
}

const deletion = `
WITH blobs AS (DELETE FROM agents.checkpoint_blobs WHERE thread_id = ANY ($1)),
writes AS (DELETE FROM agents.checkpoint_writes WHERE thread_id = ANY ($1))
DELETE FROM agents.checkpoints WHERE thread_id = ANY ($1)`;
