import { v7 as uuidv7 } from 'uuid';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { copyCheckpoints } from '../checkpoints/copy-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { lockThread } from '../runs/lock-thread.ts';
import type { Thread } from './thread.ts';
import { type ThreadRow, threadColumns, toThread } from './thread-row.ts';

/** Copies a thread with its state and checkpoints, but without its runs, to a new thread. @throws THREAD_TO_COPY_NOT_FOUND */
export async function copyThread(database: Database, deploymentId: string, threadId: string): Promise<Thread> {
  const copyId = uuidv7();
  return database.transaction(async (tx) => {
    await lockThread(tx, deploymentId, threadId);
    const [row] = await tx.query<ThreadRow>(
      `INSERT INTO agents.threads (deployment_id, thread_id, status, rest_status, metadata, config, values, searchable_values,
         interrupts, error, ttl_strategy, ttl_minutes, expires_at)
       SELECT deployment_id, $3, rest_status, rest_status, metadata, config, values, searchable_values, interrupts, error,
         ttl_strategy, ttl_minutes, clock_timestamp() + ttl_minutes * interval '1 minute'
       FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden
       RETURNING ${threadColumns}`,
      [deploymentId, threadId, copyId],
    );
    if (row === undefined) throw runlakeError('THREAD_TO_COPY_NOT_FOUND', { thread: threadId });
    await copyCheckpoints(tx, threadKey(deploymentId, threadId), threadKey(deploymentId, copyId));
    return toThread(row);
  });
}
