import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Takes away what a run wrote to its thread, in all namespaces: its checkpoints and writes, and blobs that no other checkpoint
 * refers to. What it replaced of an earlier run is put back. Only for the last run of a thread, in the transaction that ends it.
 */
export async function rollbackCheckpoints(sql: Sql, key: string, runId: string): Promise<void> {
  // One after the other: parts of one statement would not see what the others changed.
  await sql.execute(restoreWrites, [key, runId], { name: 'agents_restore_writes' });
  await sql.execute(deleteWrites, [key, runId], { name: 'agents_delete_writes' });
  await sql.execute(rollback, [key, runId], { name: 'agents_rollback_checkpoints' });
}

const restoreWrites = `
UPDATE agents.checkpoint_writes
SET run_id = replaced_run_id, type = replaced_type, blob = replaced_blob,
  replaced_run_id = NULL, replaced_type = NULL, replaced_blob = NULL
WHERE thread_id = $1 AND run_id = $2 AND replaced_blob IS NOT NULL`;

const deleteWrites = `
DELETE FROM agents.checkpoint_writes w
WHERE w.thread_id = $1 AND (
  w.run_id = $2 OR EXISTS (
    SELECT FROM agents.checkpoints c
    WHERE c.thread_id = $1 AND c.metadata ->> 'run_id' = $2 AND c.replaced IS NULL
      AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
  )
)`;

/** What stays is asked of the rows as they were before this statement. */
const rollback = `
WITH mine AS (
  SELECT checkpoint_ns, checkpoint_id, checkpoint, replaced FROM agents.checkpoints
  WHERE thread_id = $1 AND metadata ->> 'run_id' = $2
),
restored AS (
  UPDATE agents.checkpoints c
  SET checkpoint = mine.replaced -> 'checkpoint', metadata = mine.replaced -> 'metadata', replaced = NULL
  FROM mine
  WHERE c.thread_id = $1 AND c.checkpoint_ns = mine.checkpoint_ns AND c.checkpoint_id = mine.checkpoint_id
    AND mine.replaced IS NOT NULL
),
gone AS (
  DELETE FROM agents.checkpoints c USING mine
  WHERE c.thread_id = $1 AND c.checkpoint_ns = mine.checkpoint_ns AND c.checkpoint_id = mine.checkpoint_id
    AND mine.replaced IS NULL
),
staying AS (
  SELECT checkpoint_ns, checkpoint FROM agents.checkpoints
  WHERE thread_id = $1 AND metadata ->> 'run_id' IS DISTINCT FROM $2
  UNION ALL
  SELECT checkpoint_ns, replaced -> 'checkpoint' FROM mine WHERE replaced IS NOT NULL
),
unused AS (
  SELECT checkpoint_ns, key AS channel, value AS version
  FROM mine, jsonb_each_text(mine.checkpoint -> 'channel_versions')
  EXCEPT
  SELECT checkpoint_ns, key, value FROM staying, jsonb_each_text(staying.checkpoint -> 'channel_versions')
)
DELETE FROM agents.checkpoint_blobs b USING unused
WHERE b.thread_id = $1 AND b.checkpoint_ns = unused.checkpoint_ns AND b.channel = unused.channel
  AND b.version = unused.version`;
