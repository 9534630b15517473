import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { CheckpointReference } from '../runs/run.ts';

const keyPattern = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/**
 * Returns the `thread_id` of a thread in the checkpoint tables. It includes the deployment id, because LangGraph has no
 * field for the deployment.
 */
export function buildThreadKey(deploymentId: string, threadId: string): string {
  return `${deploymentId}:${threadId}`;
}

/** Inverse of {@link buildThreadKey}. Returns undefined if `key` is not a thread key. */
export function splitThreadKey(key: unknown): { readonly deploymentId: string; readonly threadId: string } | undefined {
  const match = typeof key === 'string' ? keyPattern.exec(key) : null;
  return match === null ? undefined : { deploymentId: match[1]!, threadId: match[2]! };
}

/**
 * SQL: common table expressions that copy all checkpoints of the thread with the key $1 to the thread with the key $2 and
 * the id $3, which has none. The keys are those of {@link buildThreadKey}.
 */
export const copyCheckpointsSql = `blobs AS (
  INSERT INTO agents.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
  SELECT $2, checkpoint_ns, channel, version, type, blob FROM agents.checkpoint_blobs WHERE thread_id = $1
),
writes AS (
  INSERT INTO agents.checkpoint_writes
    (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, run_id)
  SELECT $2, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, run_id
  FROM agents.checkpoint_writes WHERE thread_id = $1
),
copied_checkpoints AS (
  INSERT INTO agents.checkpoints
    (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata)
  SELECT $2, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint,
    metadata || jsonb_build_object('thread_id', $3::text)
  FROM agents.checkpoints WHERE thread_id = $1
)`;

/** Deletes all checkpoints of threads, with their blobs and writes. `keys` are thread keys ({@link buildThreadKey}). */
export async function deleteCheckpoints(sql: Sql, keys: readonly string[]): Promise<void> {
  if (keys.length === 0) return;
  await sql.execute(deleteSql, [keys], { name: 'agents_delete_threads_checkpoints' });
}

const deleteSql = `
WITH blobs AS (DELETE FROM agents.checkpoint_blobs WHERE thread_id = ANY ($1)),
writes AS (DELETE FROM agents.checkpoint_writes WHERE thread_id = ANY ($1))
DELETE FROM agents.checkpoints WHERE thread_id = ANY ($1)`;

/**
 * Deletes the history of threads but keeps their current state: the newest checkpoint of the root graph; the newest
 * checkpoint of each subgraph that is interrupted in that checkpoint or keeps its state between runs; and all
 * checkpoints of a namespace with delta channels, because their values are computed from the whole history. The caller
 * must ensure that no run of these threads is running.
 */
export async function keepLatestCheckpoint(sql: Sql, keys: readonly string[]): Promise<void> {
  if (keys.length === 0) return;
  await sql.execute(deleteHistorySql, [keys], { name: 'agents_delete_history' });
  // Use a separate statement, because a statement does not see its own deletions.
  await sql.execute(deleteUnreferencedSql, [keys], { name: 'agents_delete_unreferred' });
}

const deleteHistorySql = `
WITH latest AS (
  SELECT DISTINCT ON (thread_id, checkpoint_ns) thread_id, checkpoint_ns, checkpoint_id, metadata
  FROM agents.checkpoints WHERE thread_id = ANY ($1)
  ORDER BY thread_id, checkpoint_ns, checkpoint_id DESC
),
kept AS (
  SELECT l.thread_id, l.checkpoint_ns, l.checkpoint_id, l.metadata ? 'counters_since_delta_snapshot' AS whole
  FROM latest l LEFT JOIN latest head ON head.thread_id = l.thread_id AND head.checkpoint_ns = ''
  WHERE l.checkpoint_ns NOT LIKE '%:%' OR l.metadata #>> '{parents,""}' = head.checkpoint_id
),
cut AS (
  UPDATE agents.checkpoints c SET parent_checkpoint_id = NULL, replaced = NULL FROM kept
  WHERE c.thread_id = kept.thread_id AND c.checkpoint_ns = kept.checkpoint_ns
    AND c.checkpoint_id = kept.checkpoint_id AND NOT kept.whole
)
DELETE FROM agents.checkpoints c
WHERE c.thread_id = ANY ($1) AND NOT EXISTS (
  SELECT FROM kept
  WHERE kept.thread_id = c.thread_id AND kept.checkpoint_ns = c.checkpoint_ns
    AND (kept.whole OR kept.checkpoint_id = c.checkpoint_id)
)`;

const deleteUnreferencedSql = `
WITH writes AS (
  DELETE FROM agents.checkpoint_writes w
  WHERE w.thread_id = ANY ($1) AND NOT EXISTS (
    SELECT FROM agents.checkpoints c
    WHERE c.thread_id = w.thread_id AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
  )
),
used AS (
  SELECT DISTINCT c.thread_id, c.checkpoint_ns, key AS channel, value AS version
  FROM agents.checkpoints c, jsonb_each_text(c.checkpoint -> 'channel_versions')
  WHERE c.thread_id = ANY ($1)
)
DELETE FROM agents.checkpoint_blobs b
WHERE b.thread_id = ANY ($1) AND NOT EXISTS (
  SELECT FROM used
  WHERE used.thread_id = b.thread_id AND used.checkpoint_ns = b.checkpoint_ns
    AND used.channel = b.channel AND used.version = b.version
)`;

/**
 * Deletes the checkpoints and writes of a run and restores those that the run replaced. `key` is a thread key
 * (`buildThreadKey`).
 */
export async function rollbackCheckpoints(sql: Sql, key: string, runId: string): Promise<void> {
  await sql.query('SELECT agents.rollback_checkpoints($1, $2)', [key, runId], { name: 'agents_rollback_checkpoints' });
}

/**
 * Checks that a checkpoint exists, because LangGraph silently starts from an empty state if it does not. Accepts any id
 * for a thread that has had runs but has no checkpoints in Postgres, because its graph has its own checkpointer.
 *
 * @throws CHECKPOINT_NOT_FOUND
 */
export async function requireCheckpoint(
  sql: Sql,
  deploymentId: string,
  threadId: string,
  { checkpoint_id: id, checkpoint_ns: namespace = '' }: CheckpointReference,
): Promise<void> {
  if (id === undefined) return;
  const [row] = await sql.query<{ found: boolean }>(
    `SELECT EXISTS (
        SELECT FROM agents.checkpoints WHERE thread_id = $3 AND checkpoint_ns = $4 AND checkpoint_id = $5
      ) OR (
        NOT EXISTS (SELECT FROM agents.checkpoints WHERE thread_id = $3)
        AND EXISTS (SELECT FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND starts > earlier_starts)
      ) AS found`,
    [deploymentId, threadId, buildThreadKey(deploymentId, threadId), namespace, id],
  );
  if (row?.found !== true) throw runlakeError('CHECKPOINT_NOT_FOUND', { thread: threadId, checkpoint: id });
}
