import type { Sql } from '../../../infra/postgres/database.ts';
import { splitThreadKey } from './thread-key.ts';

/** Copies all checkpoints of a thread to a thread that has none. Both arguments are keys of `thread-key.ts`. */
export async function copyCheckpoints(sql: Sql, fromKey: string, toKey: string): Promise<void> {
  const threadId = splitThreadKey(toKey)?.threadId ?? toKey;
  await sql.execute(copy, [fromKey, toKey, threadId], { name: 'agents_copy_checkpoints' });
}

const copy = `
WITH blobs AS (
  INSERT INTO agents.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
  SELECT $2, checkpoint_ns, channel, version, type, blob FROM agents.checkpoint_blobs WHERE thread_id = $1
),
writes AS (
  INSERT INTO agents.checkpoint_writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, run_id)
  SELECT $2, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, run_id
  FROM agents.checkpoint_writes WHERE thread_id = $1
)
INSERT INTO agents.checkpoints
  (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
SELECT $2, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
  metadata || jsonb_build_object('thread_id', $3::text)
FROM agents.checkpoints WHERE thread_id = $1`;
