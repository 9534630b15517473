import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { buildThreadKey, deleteCheckpoints, keepLatestCheckpoint } from '../checkpoints/copy-checkpoints.ts';
import { deletionTimeoutMs, requestDeletionTimeoutMs } from '../delete-agent-rows.ts';
import { removeRuns } from '../runs/delete-run.ts';
import { recordDeletedThreads } from './deleted-threads.ts';
import type { TtlStrategy } from './thread.ts';

/**
 * Maximum number of threads that one transaction deletes or prunes: their history can be large, and requests to these
 * threads wait for the commit.
 */
const threadsPerTransaction = 50;

/**
 * Deletes a thread with its runs and state. A run in progress loses its lease: the process that executes the run stops
 * it and can no longer write.
 *
 * @throws THREAD_NOT_FOUND
 */
export async function deleteThread(database: Database, deploymentId: string, threadId: string): Promise<void> {
  // A client whose deletion fails repeats it, so it must not fail because the history is long.
  const deleted = await database.transaction((tx) => removeThreads(tx, deploymentId, [threadId]), {
    timeoutMs: requestDeletionTimeoutMs,
  });
  if (deleted === 0) throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
}

/**
 * Deletes those of `threadIds` that exist. Deletes hidden threads only if `hidden` is true.
 *
 * @returns the number of deleted threads.
 */
export async function removeThreads(
  tx: Sql,
  deploymentId: string,
  threadIds: readonly string[],
  { hidden = false }: { readonly hidden?: boolean } = {},
): Promise<number> {
  // The threads' crons are deleted with them. A cron that fires is locked before its thread, so the same order prevents
  // deadlocks.
  await tx.query(
    'SELECT FROM agents.crons WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[]) ORDER BY cron_id FOR UPDATE',
    [deploymentId, threadIds],
  );
  const rows = await tx.query<{ thread_id: string }>(
    `SELECT thread_id FROM agents.threads WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[]) AND ($3 OR NOT hidden)
     ORDER BY thread_id FOR UPDATE`,
    [deploymentId, threadIds, hidden],
  );
  if (rows.length === 0) return 0;
  const found = rows.map(({ thread_id }) => thread_id);
  await removeRuns(tx, deploymentId, found);
  await deleteCheckpoints(
    tx,
    found.map((threadId) => buildThreadKey(deploymentId, threadId)),
  );
  await recordDeletedThreads(tx, deploymentId, found);
  return tx.execute('DELETE FROM agents.threads WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[])', [
    deploymentId,
    found,
  ]);
}

/**
 * Deletes threads or, with `keep_latest`, only their history before the newest state, in several transactions. Ignores
 * threads that do not exist and, with `keep_latest`, busy threads.
 *
 * @returns the number of deleted or pruned threads.
 */
export async function pruneThreads(
  database: Database,
  deploymentId: string,
  { threadIds, strategy }: { readonly threadIds: readonly string[]; readonly strategy: TtlStrategy },
): Promise<number> {
  const distinctIds = [...new Set(threadIds.map((id) => id.toLowerCase()))];
  let count = 0;
  for (let from = 0; from < distinctIds.length; from += threadsPerTransaction) {
    const part = distinctIds.slice(from, from + threadsPerTransaction);
    count += await pruneTogether(database, deploymentId, part, strategy);
  }
  return count;
}

function pruneTogether(
  database: Database,
  deploymentId: string,
  threadIds: readonly string[],
  strategy: TtlStrategy,
): Promise<number> {
  const prune = async (tx: Sql) => {
    if (strategy === 'delete') return removeThreads(tx, deploymentId, threadIds);
    const rows = await tx.query<{ thread_id: string }>(
      `SELECT thread_id FROM agents.threads
       WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[]) AND NOT hidden AND status <> 'busy'
         AND (write_until IS NULL OR write_until <= clock_timestamp())
       ORDER BY thread_id FOR UPDATE`,
      [deploymentId, threadIds],
    );
    const keys = rows.map((row) => buildThreadKey(deploymentId, row.thread_id));
    if (keys.length > 0) await keepLatestCheckpoint(tx, keys);
    return rows.length;
  };
  return database.transaction(prune, { timeoutMs: requestDeletionTimeoutMs });
}

/**
 * Deletes or prunes the expired threads that are not busy, each in a transaction of its own, so that requests to the
 * others do not wait. Does not delete a thread whose cron will fire, because the cron would be deleted with it. When
 * `signal` is aborted, the transaction in progress is rolled back.
 *
 * @returns the number of these threads.
 */
export async function expireThreads(database: Database, deploymentId: string, signal?: AbortSignal): Promise<number> {
  let count = 0;
  // The threads that a sweep has passed over stay until the next one: very many may have crons.
  for (let from = '-infinity'; !signal?.aborted; count += 1) {
    const expiredAt = await expireThread(database, deploymentId, from, signal);
    if (expiredAt === undefined) break;
    from = expiredAt;
  }
  return count;
}

/** Handles the first thread that expired at `from` or later. @returns when it expired; undefined if there is none. */
function expireThread(
  database: Database,
  deploymentId: string,
  from: string,
  signal: AbortSignal | undefined,
): Promise<string | undefined> {
  const expire = async (tx: Sql) => {
    const [thread] = await tx.query<{ thread_id: string; ttl_strategy: TtlStrategy; expires_at: string }>(
      `SELECT thread_id, ttl_strategy, expires_at FROM agents.threads
       WHERE deployment_id = $1 AND expires_at BETWEEN $2 AND now() AND status <> 'busy'
         AND (write_until IS NULL OR write_until <= clock_timestamp())
         AND (ttl_strategy <> 'delete' OR NOT EXISTS (
           SELECT FROM agents.crons cron WHERE cron.deployment_id = $1 AND cron.thread_id = threads.thread_id
             AND cron.enabled AND cron.next_run_date IS NOT NULL))
       ORDER BY expires_at LIMIT 1 FOR UPDATE SKIP LOCKED`,
      [deploymentId, from],
    );
    if (thread === undefined) return undefined;
    const { thread_id: threadId, ttl_strategy: strategy } = thread;
    if (strategy === 'delete') await removeThreads(tx, deploymentId, [threadId], { hidden: true });
    else {
      await keepLatestCheckpoint(tx, [buildThreadKey(deploymentId, threadId)]);
      // A pruned thread needs no further pruning until its next run, which sets a new expiry.
      await tx.execute('UPDATE agents.threads SET expires_at = NULL WHERE deployment_id = $1 AND thread_id = $2', [
        deploymentId,
        threadId,
      ]);
    }
    return thread.expires_at;
  };
  // A sweep that fails would find the same thread again.
  return database.transaction((tx) => endOnAbort(database, tx, signal, () => expire(tx)), {
    timeoutMs: deletionTimeoutMs,
  });
}

/** Runs `work` in `tx`. When `signal` is aborted, ends the connection of `tx`, so that no statement delays a shutdown. */
async function endOnAbort<Result>(
  database: Database,
  tx: Sql,
  signal: AbortSignal | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  const [backend] = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  signal?.throwIfAborted();
  let ending: Promise<unknown> | undefined;
  const end = () => {
    ending = database.query('SELECT pg_terminate_backend($1)', [backend?.pid]).catch(() => undefined);
  };
  signal?.addEventListener('abort', end, { once: true });
  try {
    return await work();
  } finally {
    signal?.removeEventListener('abort', end);
    // Another user must not get the connection before it ends.
    await ending;
  }
}
