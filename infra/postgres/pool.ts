import pg from 'pg';
import type { Logger } from '../telemetry/logger.ts';
import { postgresAddress } from './address.ts';
import { Connection, sqlThrough } from './connection.ts';
import type { Database } from './database.ts';
import { databaseError } from './database-error.ts';
import { runTransaction } from './transaction.ts';
import { valueTypes } from './value-types.ts';

export type { Database, Sql } from './database.ts';

export interface DatabaseOptions {
  /** `postgres://user:password@host:port/database`; TLS by its `sslmode`, see {@link postgresAddress}. */
  readonly url: string;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  /** Timeout of each statement, and of the wait for a connection. */
  readonly timeoutMs: number;
  /** Maximum number of connections; further callers wait for one. Default 10. */
  readonly maxConnections?: number;
}

/**
 * Opens a connection pool. Connects at the first statement. A broken connection, even an idle one, is dropped and the
 * next call opens another, so that Postgres can restart.
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
    // These settings are not start-up options, because connection poolers reject start-up options and the address may
    // contain its own. The pool awaits this function.
    onConnect: async (client) => {
      await client.query(
        `SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET statement_timeout = ${Math.ceil(timeoutMs)}`,
      );
    },
  });
  // Without a listener, an error of an idle connection would crash the process. The pool has already dropped the connection.
  pool.on('error', (err) => {
    // A closing pool does not wait for its sockets, so errors are expected if Postgres stops right after the pool
    // closes.
    if (!pool.ending) logger.warn({ err }, 'lost an idle connection to Postgres');
  });

  async function withConnection<Result>(work: (connection: Connection) => Promise<Result>): Promise<Result> {
    const client = await pool.connect().catch((raw) => {
      throw databaseError(raw);
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
