import type { Sql } from '../../../infra/postgres/database.ts';

export interface HeadCheckpoint {
  readonly checkpointId: string;
  /** The run that wrote it; null if it was written outside a run. */
  readonly runId: string | null;
}

/**
 * Reads the newest checkpoint of a thread's root graph; undefined if the thread has none. `key` is a key of `thread-key.ts`.
 */
export async function headCheckpoint(sql: Sql, key: string): Promise<HeadCheckpoint | undefined> {
  const rows = await sql.query<HeadCheckpoint>(
    `SELECT checkpoint_id AS "checkpointId", metadata ->> 'run_id' AS "runId" FROM agents.checkpoints
     WHERE thread_id = $1 AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1`,
    [key],
    { name: 'agents_head_checkpoint' },
  );
  return rows[0];
}
