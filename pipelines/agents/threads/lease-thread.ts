import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';

export interface ThreadLease {
  /** The `write_token` that the saver writes under. */
  readonly token: string;
  release(): Promise<void>;
}

/**
 * Takes a write lease on a thread for at most `ms` milliseconds, to update its state outside a run. No run of the
 * thread is claimed until the lease is released or expires.
 *
 * @throws THREAD_NOT_FOUND; THREAD_BUSY if a run of the thread is pending or running, or another process holds the lease.
 */
export async function leaseThread(
  database: Sql,
  deploymentId: string,
  threadId: string,
  ms: number,
): Promise<ThreadLease> {
  const [row] = await database.query<{ write_token: string | null; held: boolean }>(
    `WITH thread AS (
       SELECT deployment_id, thread_id, status <> 'busy' AND (write_until IS NULL OR write_until <= clock_timestamp()) AS free
       FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden FOR UPDATE
     ), held AS (
       UPDATE agents.threads SET write_token = gen_random_uuid(), write_until = clock_timestamp() + $3 * interval '1 millisecond'
       FROM thread WHERE thread.free AND threads.deployment_id = thread.deployment_id AND threads.thread_id = thread.thread_id
       RETURNING write_token
     )
     SELECT (SELECT write_token FROM held) AS write_token FROM thread`,
    [deploymentId, threadId, ms],
  );
  if (row === undefined) throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
  if (row.write_token === null) throw runlakeError('THREAD_BUSY', { thread: threadId });
  const token = row.write_token;
  return {
    token,
    async release() {
      await database.query(
        `WITH released AS (
           UPDATE agents.threads SET write_token = NULL, write_until = NULL
           WHERE deployment_id = $1 AND thread_id = $2 AND write_token = $3
         ) SELECT pg_notify('agent_runs', $1::uuid::text)`,
        [deploymentId, threadId, token],
      );
    },
  };
}
