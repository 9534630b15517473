import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { threadKey } from '../checkpoints/copy-checkpoints.ts';
import type { CheckpointChoice } from './run.ts';

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
  { checkpoint_id: id, checkpoint_ns: namespace = '' }: CheckpointChoice,
): Promise<void> {
  if (id === undefined) return;
  const [row] = await sql.query<{ found: boolean }>(
    `SELECT EXISTS (
        SELECT FROM agents.checkpoints WHERE thread_id = $3 AND checkpoint_ns = $4 AND checkpoint_id = $5
      ) OR (
        NOT EXISTS (SELECT FROM agents.checkpoints WHERE thread_id = $3)
        AND EXISTS (SELECT FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND starts > 0)
      ) AS found`,
    [deploymentId, threadId, threadKey(deploymentId, threadId), namespace, id],
  );
  if (row?.found !== true) throw runlakeError('CHECKPOINT_NOT_FOUND', { thread: threadId, checkpoint: id });
}
