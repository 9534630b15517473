import pg from 'pg';
import { runlakeError } from '../errors/runlake-error.ts';
import { FairSlots } from '../fairness/fair-slots.ts';
import { getTenantContext } from '../fairness/tenant-context.ts';
import type { Logger } from '../telemetry/logger.ts';
import { getActor, nameActor } from './actor.ts';
import { parsePostgresAddress } from './address.ts';
import { Connection, createSql } from './connection.ts';
import type { Database, Session, Sql } from './database.ts';
import { toDatabaseError } from './database-error.ts';
import { valueTypes } from './value-types.ts';

export type { Database, Sql } from './database.ts';

/** Connections that organisations cannot hold, such as for the check of a key. */
const ownConnections = 3;

export interface DatabaseOptions {
  /**
   * Address of the form `postgres://user:password@host:port/database`. Its `sslmode` controls TLS, see
   * {@link parsePostgresAddress}.
   */
  readonly url: string;
  /** Trusted CA certificates, in PEM. */
  readonly authorities?: readonly string[] | undefined;
  readonly logger: Logger;
  /** Timeout of each statement, of the wait for a share of the connections, and of that for a connection. */
  readonly timeoutMs: number;
  /** Maximum number of connections of one organisation; see {@link openDatabase}. Further callers wait. Default 10. */
  readonly maxConnections?: number;
}

/**
 * Opens a connection pool. Connects at the first statement. A broken connection, even an idle one, is dropped and the
 * next call opens another, so that Postgres can restart.
 *
 * Organisations share the connections fairly: one alone may hold `maxConnections`. Half as many more, rounded down, are
 * for organisations below their share, and {@link ownConnections} more for Runlake's own work, which waits for no share.
 * A pool of one connection serves only Runlake's own work.
 */
export function openDatabase({ url, authorities, logger, timeoutMs, maxConnections = 10 }: DatabaseOptions): Database {
  const extraSlots = Math.floor(maxConnections / 2);
  const pool = new pg.Pool({
    ...parsePostgresAddress(url, authorities),
    application_name: 'runlake',
    max: extraSlots === 0 ? maxConnections : maxConnections + extraSlots + ownConnections,
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
  // Without a listener, an error of an idle connection would crash the process. The pool has already dropped the
  // connection.
  pool.on('error', (err) => {
    // A closing pool does not wait for its sockets, so errors are expected if Postgres stops right after the pool
    // closes.
    if (!pool.ending) logger.warn({ err }, 'lost an idle connection to Postgres');
  });

  const slots =
    extraSlots === 0
      ? undefined
      : new FairSlots({ name: 'postgres-connections', slots: maxConnections, extraSlots, maxWaiting: Infinity });

  async function withConnection<Result>(work: (connection: Connection) => Promise<Result>): Promise<Result> {
    const tenant = getTenantContext();
    const refuse = (raw: unknown) => {
      tenant?.disconnected?.throwIfAborted();
      throw toDatabaseError(raw);
    };
    const options = { maxWaitMs: timeoutMs, signal: tenant?.disconnected };
    const slot = tenant && (await slots?.acquire(tenant.organizationId, options).catch(refuse));
    try {
      const connection = new Connection(await pool.connect().catch(refuse));
      try {
        return await work(connection);
      } finally {
        connection.release();
      }
    } finally {
      slot?.release();
    }
  }

  const sql = createSql((text, params, options) =>
    withConnection((connection) => {
      const send = () => connection.send(text, timeoutMs, params, options);
      // The setting that names the actor lasts for a transaction.
      return getActor() !== undefined && changingWords.test(text)
        ? runTransaction(connection, send, { statementTimeoutMs: timeoutMs, changed: false })
        : send();
    }),
  );

  const begin =
    (connection: Connection): Session['transaction'] =>
    (work, options) =>
      runTransaction(connection, work, {
        statementTimeoutMs: options?.timeoutMs ?? timeoutMs,
        changed: options?.timeoutMs !== undefined,
      });

  return {
    ...sql,
    transaction: (work, options) => withConnection((connection) => begin(connection)(work, options)),
    session: (work) =>
      withConnection(async (connection) => {
        const send = createSql((text, params, options) => connection.send(text, timeoutMs, params, options));
        try {
          return await work({ ...send, transaction: begin(connection) });
        } finally {
          await send.query('SELECT pg_advisory_unlock_all()').catch(() => connection.discard());
        }
      }),
    ping: async () => void (await sql.query('SELECT 1')),
    version: async () => (await sql.query<{ server_version: string }>('SHOW server_version'))[0]!.server_version,
    close: () => pool.end(),
  };
}

/** A statement without any of these words changes no row. */
const changingWords = /\b(?:INSERT|UPDATE|DELETE)\b/i;

/**
 * Runs `work` between BEGIN and COMMIT on `connection`.
 *
 * Invariant: if this rejects, the changes of `work` are rolled back, with one exception at step 3. Steps: 1. BEGIN; 2.
 * `work`; 3. COMMIT. After a failure at step 2, this function sends ROLLBACK. It does not if the connection is broken,
 * because Postgres then rolls back by itself. At step 3, Postgres replies ROLLBACK without an error if the transaction
 * had already failed; this function reports that as an error. If the connection breaks during step 3, the outcome is
 * unknown: callers get DATABASE_UNAVAILABLE and must be able to repeat the transaction.
 */
async function runTransaction<Result>(
  connection: Connection,
  work: (tx: Sql) => Promise<Result>,
  timeouts: { readonly statementTimeoutMs: number; readonly changed: boolean },
): Promise<Result> {
  const { statementTimeoutMs, changed } = timeouts;
  const limit = `SET LOCAL statement_timeout = ${Math.ceil(statementTimeoutMs)}`;
  await connection.send(changed ? `BEGIN; ${limit}` : 'BEGIN', statementTimeoutMs);
  try {
    const actor = getActor();
    if (actor !== undefined) await nameActor(connection, actor, statementTimeoutMs);
    const result = await work(
      createSql((sql, params, options) => connection.send(sql, statementTimeoutMs, params, options)),
    );
    const { command } = await connection.send('COMMIT', statementTimeoutMs);
    if (command !== 'COMMIT') throw runlakeError('DATABASE_QUERY_FAILED');
    return result;
  } catch (error) {
    // A failing ROLLBACK marks the connection as broken; closing it also ends the transaction.
    if (!connection.broken) await connection.send('ROLLBACK', statementTimeoutMs).catch(() => undefined);
    throw error;
  }
}

/** Runs `work` in the transaction `sql`, or in a new transaction if `sql` is a database. */
export function runInTransaction<Result>(sql: Database | Sql, work: (tx: Sql) => Promise<Result>): Promise<Result> {
  return 'transaction' in sql ? sql.transaction(work) : work(sql);
}
