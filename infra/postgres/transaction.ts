import { fault } from '../errors/runlake-error.ts';
import { type Connection, sqlThrough } from './connection.ts';
import type { Sql } from './database.ts';

/**
 * Runs `work` between BEGIN and COMMIT on `connection`.
 *
 * Invariant: whatever rejects, nothing of `work` stays. Steps: 1. BEGIN; 2. `work`; 3. COMMIT. A failure at 2 is followed by
 * ROLLBACK, unless the connection is broken, which Postgres takes for one. At 3 Postgres answers a transaction that it has
 * given up already with ROLLBACK and no error; that is made an error here. A connection that breaks during 3 leaves it
 * open whether the commit happened: callers hear DATABASE_UNAVAILABLE and must be able to repeat.
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
    if (command !== 'COMMIT') throw fault('DATABASE_QUERY_FAILED');
    return result;
  } catch (error) {
    // A ROLLBACK that fails marks the connection broken, and with it the transaction ends too.
    if (!connection.broken) await connection.send('ROLLBACK', statementMs).catch(() => undefined);
    throw error;
  }
}
