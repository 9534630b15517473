import pg from 'pg';
import type { Logger } from '../telemetry/logger.ts';
import { postgresAddress } from './address.ts';
import { Connection, sqlThrough } from './connection.ts';
import type { Database } from './database.ts';
import { databaseFault } from './faults.ts';
import { runTransaction } from './transaction.ts';
import { valueTypes } from './value-types.ts';

export type { Database, Sql } from './database.ts';

export interface DatabaseOptions {
  /** `postgres://user:password@host:port/database`; TLS by its `sslmode`, see {@link postgresAddress}. */
  readonly url: string;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  /** How long a statement may take, and how long a caller waits for a connection. */
  readonly timeoutMs: number;
  /** Most connections at once; further callers wait for one. Default 10. */
  readonly maxConnections?: number;
}

/**
 * Opens the database. Connects at the first statement. A connection that breaks, also while idle, is dropped and the next
 * call opens another, so that Postgres may restart under us.
 */
export function openDatabase({ url, authorities, logger, timeoutMs, maxConnections = 10 }: DatabaseOptions): Database {
  const pool = new pg.Pool({
    ...postgresAddress(url, authorities),
    application_name: 'runlake',
    max: maxConnections,
    connectionTimeoutMillis: timeoutMs,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    types: valueTypes,
    // Not as start-up options: connection poolers refuse those, and an address may carry its own. The pool waits for it.
    onConnect: async (client) => {
      await client.query(
        `SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET statement_timeout = ${Math.ceil(timeoutMs)}`,
      );
    },
  });
  // Without a listener a connection that dies while idle would end the process. The pool has dropped it already.
  pool.on('error', (err) => {
    // A pool that ends does not wait for its sockets; a Postgres that stops right after may still speak to them.
    if (!pool.ending) logger.warn({ err }, 'an idle connection to Postgres was lost');
  });

  async function withConnection<Result>(work: (connection: Connection) => Promise<Result>): Promise<Result> {
    const client = await pool.connect().catch((raw) => {
      throw databaseFault(raw);
    });
    const connection = new Connection(client);
    try {
      return await work(connection);
    } finally {
      connection.release();
    }
  }

  const sql = sqlThrough((text, params, options) =>
    withConnection((connection) => connection.send(text, timeoutMs, params, options)),
  );

  return {
    ...sql,
    transaction: (work, options) =>
      withConnection((connection) =>
        runTransaction(connection, work, {
          statementMs: options?.timeoutMs ?? timeoutMs,
          changed: options?.timeoutMs !== undefined,
        }),
      ),
    ping: async () => void (await sql.query('SELECT 1')),
    version: async () => (await sql.query<{ server_version: string }>('SHOW server_version'))[0]!.server_version,
    close: () => pool.end(),
  };
}
