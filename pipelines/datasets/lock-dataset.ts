/**
 * Waits for the lock of a dataset.
 *
 * Invariant: of all operations of this process that lock the same dataset, only one holds a connection. Otherwise the
 * writers of one dataset could hold the whole connection pool while they wait for each other.
 *
 *   1. An operation waits in this process until it is its turn for all datasets that it locks.
 *   2. It takes a connection and waits for the rows, which other processes may have locked, for a limited time.
 *
 * Both waits end with DATABASE_UNAVAILABLE, which clients retry.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { runExclusiveForAll } from '../../infra/fairness/run-exclusive.ts';
import type { Sql } from '../../infra/postgres/database.ts';

const queueLimit = {
  /** As long as a request waits for a connection. */
  maxWaitMs: 30_000,
  createError: () => runlakeError('DATABASE_UNAVAILABLE', {}, { retryAfterSeconds: 1 }),
};
const maxLockWaitMs = 5_000;

/**
 * Runs `work`, which locks these datasets in the order of their ids, when it is its turn for each of them. `work` must
 * not call this function for the same datasets.
 *
 * @throws DATABASE_UNAVAILABLE if that takes too long; errors of `work`.
 */
export async function queueForDatasets<Result>(ids: readonly string[], work: () => Promise<Result>): Promise<Result> {
  return runExclusiveForAll(
    ids.map((id) => `dataset:${id.toLowerCase()}`),
    queueLimit,
    work,
  );
}

/**
 * Locks the row of a dataset and returns its number of versions.
 *
 * @throws NOT_FOUND; DATABASE_UNAVAILABLE if that takes too long.
 */
export async function lockDataset(
  tx: Sql,
  workspaceId: string,
  datasetId: string,
  lock: 'UPDATE' | 'NO KEY UPDATE' | 'SHARE',
): Promise<{ readonly versions: number }> {
  await limitLockWait(tx);
  const [locked] = await tx.query<{ versions: number }>(
    `SELECT version_count AS versions FROM datasets WHERE id = $1 AND workspace_id = $2 FOR ${lock}`,
    [datasetId, workspaceId],
  );
  if (locked === undefined) throw runlakeError('NOT_FOUND', { what: 'Dataset' });
  return locked;
}

/** Limits how long the later statements of the transaction wait for a lock. */
export async function limitLockWait(tx: Sql): Promise<void> {
  await tx.execute(`SET LOCAL lock_timeout = ${maxLockWaitMs}`);
}
