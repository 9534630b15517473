import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Thread } from './thread.ts';
import { type ThreadRow, threadColumns, toThread } from './thread-row.ts';

/** A thread, with its `ttl` where it has one. Hidden ones are not found. @throws THREAD_NOT_FOUND */
export async function readThread(database: Sql, deploymentId: string, threadId: string): Promise<Thread> {
  const thread = await findThread(database, deploymentId, threadId);
  if (thread === undefined) throw fault('THREAD_NOT_FOUND', { thread: threadId });
  return thread;
}

/** As {@link readThread}; undefined where there is none. */
export async function findThread(database: Sql, deploymentId: string, threadId: string): Promise<Thread | undefined> {
  const [row] = await database.query<ThreadRow>(
    `SELECT ${threadColumns} FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden`,
    [deploymentId, threadId],
    { name: 'agents_read_thread' },
  );
  return row && toThread(row);
}
