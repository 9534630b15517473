/**
 * Stream events of deleted threads.
 *
 * Invariant: readers of a thread never receive events of a deleted thread with the same id.
 *
 *   1. The transaction that deletes a thread stores its number of starts in `agents.deleted_threads`.
 *   2. The starts of a new thread with the same id continue at this number, so its events have higher thread sequence
 *      numbers. Its readers skip lower ones, wherever these come from: a process may still publish events of a run that
 *      ended with the deleted thread.
 *   3. An hour later no process publishes such events any more. When those in the log are stored, a purge deletes them
 *      from ClickHouse and then deletes the row.
 */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { type EventLog, waitUntilStored } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { deleteStreamEvents } from '../../streams/delete-stream-events.ts';

/**
 * Step 1 of the header comment, for those of `threadIds` that have events; all threads of the deployment if undefined.
 * Call it in the transaction that deletes the threads, before it deletes their rows. The purges of an hour are due
 * together, because each rewrites parts of the table.
 */
export async function recordDeletedThreads(
  tx: Sql,
  deploymentId: string,
  threadIds?: readonly string[],
): Promise<void> {
  await tx.execute(
    `INSERT INTO agents.deleted_threads (deployment_id, thread_id, starts, purge_at)
     SELECT deployment_id, thread_id, starts, date_trunc('hour', clock_timestamp(), 'UTC') + interval '2 hours'
     FROM agents.threads
     WHERE deployment_id = $1 AND ($2::uuid[] IS NULL OR thread_id = ANY ($2)) AND starts > earlier_starts
     ORDER BY thread_id
     ON CONFLICT (deployment_id, thread_id) DO UPDATE SET starts = excluded.starts, purge_at = excluded.purge_at`,
    [deploymentId, threadIds ?? null],
  );
}

/**
 * Returns the number of starts of deleted threads with the id `threadId`, for a reader of the thread. Such a reader may
 * attach before the thread exists.
 */
export async function readEarlierStarts(sql: Sql, deploymentId: string, threadId: string): Promise<number> {
  const [row] = await sql.query<{ starts: number }>(
    `SELECT coalesce(
       (SELECT earlier_starts FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2),
       (SELECT starts FROM agents.deleted_threads WHERE deployment_id = $1 AND thread_id = $2), 0) AS starts`,
    [deploymentId, threadId],
    { name: 'agents_earlier_starts' },
  );
  return row!.starts;
}

/** How long a purge waits for the sinks, and after which time a purge that did not succeed is due again. */
const sinkTimeoutMs = 60_000;
const retryPause = `interval '10 minutes'`;

/**
 * Returns step 3 of the header comment, for up to 1,000 threads in one call. Waits for runs whose end is not in the log
 * yet, which is possible while the log is unavailable.
 */
export function createDeletedThreadPurge({
  clickhouse,
  log,
}: {
  readonly clickhouse: ClickHouse;
  readonly log: Pick<EventLog, 'position' | 'isStored'>;
}) {
  return async (database: Database, deploymentId: string, signal: AbortSignal): Promise<number> => {
    const rows = await database.query<{ thread_id: string; starts: number; purge_at: string }>(
      `UPDATE agents.deleted_threads SET purge_at = clock_timestamp() + ${retryPause}
       WHERE deployment_id = $1 AND thread_id IN (
         SELECT thread_id FROM agents.deleted_threads deleted
         WHERE deployment_id = $1 AND purge_at <= now() AND NOT EXISTS (
           SELECT FROM agents.runs run
           WHERE run.thread_id = deleted.thread_id AND run.deployment_id = $1 AND run.removed
         )
         ORDER BY purge_at LIMIT 1000 FOR UPDATE SKIP LOCKED
       ) RETURNING thread_id, starts, purge_at`,
      [deploymentId],
    );
    if (rows.length === 0) return 0;
    if (!(await waitUntilStored(log, streamEvents, { timeoutMs: sinkTimeoutMs, signal }))) return 0;
    await deleteStreamEvents(clickhouse, {
      deploymentId,
      threads: rows.map(({ thread_id: threadId, starts }) => ({ threadId, starts })),
      signal,
    });
    // A row whose thread was created and deleted again meanwhile stays.
    await database.execute(
      `DELETE FROM agents.deleted_threads deleted USING unnest($2::uuid[], $3::timestamptz[]) AS purged (thread_id, purge_at)
       WHERE deleted.deployment_id = $1 AND deleted.thread_id = purged.thread_id AND deleted.purge_at = purged.purge_at`,
      [deploymentId, rows.map(({ thread_id }) => thread_id), rows.map(({ purge_at }) => purge_at)],
    );
    return rows.length;
  };
}
