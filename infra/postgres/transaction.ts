import { runlakeError } from '../errors/runlake-error.ts';
import { type Connection, sqlThrough } from './connection.ts';
import type { Database, Sql } from './database.ts';

/**
 * Runs `work` between BEGIN and COMMIT on `connection`.
 *
 * Invariant: if this rejects, the changes of `work` are rolled back, with one exception at step 3. Steps: 1. BEGIN; 2.
 * `work`; 3. COMMIT. After a failure at step 2, this function sends ROLLBACK. It does not if the connection is broken,
 * because Postgres then rolls back by itself. At step 3, Postgres replies ROLLBACK without an error if the transaction
 * had already failed; this function reports that as an error. If the connection breaks during step 3, the outcome is
 * unknown: callers get DATABASE_UNAVAILABLE and must be able to repeat the transaction.
 */
export async function runTransaction<Result>(
  connection: Connection,
  work: (tx: Sql) => Promise<Result>,
  timeouts: { readonly statementMs: number; readonly changed: boolean },
): Promise<Result> {
  const { statementMs, changed } = timeouts;
  const limit = `SET LOCAL statement_timeout = ${Math.ceil(statementMs)}`;
  await connection.send(changed ? `BEGIN; ${limit}` : 'BEGIN', statementMs);
  try {
    const result = await work(sqlThrough((sql, params, options) => connection.send(sql, statementMs, params, options)));
    const { command } = await connection.send('COMMIT', statementMs);
    if (command !== 'COMMIT') throw runlakeError('DATABASE_QUERY_FAILED');
    return result;
  } catch (error) {
    // A failing ROLLBACK marks the connection as broken; closing it also ends the transaction.
    if (!connection.broken) await connection.send('ROLLBACK', statementMs).catch(() => undefined);
    throw error;
  }
}

/** Runs `work` in the transaction `sql`, or in a new transaction if `sql` is a database. */
export function withinTransaction<Result>(sql: Database | Sql, work: (tx: Sql) => Promise<Result>): Promise<Result> {
  return 'transaction' in sql ? sql.transaction(work) : work(sql);
}
