import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Thread } from './thread.ts';
import { type ThreadRow, threadColumns, toThread } from './thread-row.ts';

/** Reads a visible thread, with its `ttl` if it has one. @throws THREAD_NOT_FOUND, also for a hidden thread. */
export async function readThread(database: Sql, deploymentId: string, threadId: string): Promise<Thread> {
  const thread = await findThread(database, deploymentId, threadId);
  if (thread === undefined) throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
  return thread;
}

/** Like {@link readThread}, but returns undefined if there is no such thread. */
export async function findThread(database: Sql, deploymentId: string, threadId: string): Promise<Thread | undefined> {
  const [row] = await database.query<ThreadRow>(
    `SELECT ${threadColumns} FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden`,
    [deploymentId, threadId],
    { name: 'agents_read_thread' },
  );
  return row && toThread(row);
}
