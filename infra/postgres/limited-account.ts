/**
 * A restricted Postgres role for user code, which must not use Runlake's own role. A process creates its role at its
 * start and drops it at its end.
 *
 * Invariant: an expired role is not in use. The process of a role extends the expiry (`VALID UNTIL`) while the process
 * runs.
 *
 *   1. Drop expired roles, then create the role of this process and grant its privileges: one transaction each, under
 *      a lock.
 *   2. Test the connection. If it is refused (by `pg_hba.conf` or a pooler with a list of users), drop the role again.
 *   3. Repeat step 1 several times before the expiry, to extend it. If another process has dropped the role because
 *      this process was suspended for too long, create it again with the same password.
 *   4. `close` drops the role. If the process dies before that, another process or the next start drops it.
 */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { isRunlakeError } from '../errors/runlake-error.ts';
import type { Logger } from '../telemetry/logger.ts';
import { parsePostgresAddress } from './address.ts';
import type { Database, Sql } from './database.ts';

export interface LimitedAccountOptions {
  readonly database: Database;
  /** The address of `database`. */
  readonly url: string;
  readonly authorities?: readonly string[] | undefined;
  /** Prefix of the role names: letters and `_`. */
  readonly prefix: string;
  readonly schema: string;
  /**
   * Tables of the schema whose rows the role may read and change. Beyond these, the role has only the privileges of
   * PUBLIC.
   */
  readonly tables: readonly string[];
  /** Runs in the transaction that creates the role. */
  readonly onCreate?: ((sql: Sql, name: string) => Promise<void>) | undefined;
  readonly logger: Logger;
  /** Time until a role expires without renewal. Default: ten minutes. */
  readonly validMs?: number;
}

export interface LimitedAccount {
  /** The address with user and password of the role. */
  readonly url: string;
  /** Drops the role. Its open sessions continue without privileges. */
  close(): Promise<void>;
}

/**
 * Creates a limited role and keeps it valid.
 *
 * @returns undefined if the user of `database` cannot create roles or grant the privileges, or if the new role cannot
 *   connect.
 * @throws the errors of the database.
 */
export async function openLimitedAccount(options: LimitedAccountOptions): Promise<LimitedAccount | undefined> {
  const { database, prefix, logger, validMs = 600_000 } = options;
  const [own] = await database.query<{ able: boolean; oid: number }>(
    `SELECT r.rolcreaterole OR r.rolsuper AS able, d.oid::int8 AS oid FROM pg_roles r, pg_database d
     WHERE r.rolname = current_user AND d.datname = current_database()`,
  );
  if (!own?.able) return undefined;
  // Role names contain the id of the database. Privileges belong to one database, and a role can only be dropped after
  // a connection to that database has revoked them.
  const family = `${prefix}_${own.oid}_`;
  const name = `${family}${randomBytes(6).toString('hex')}`;
  const password = randomBytes(24).toString('hex');
  const { schema, tables, onCreate } = options;
  const one: Account = { schema, tables, onCreate, name, password, validMs };
  const renew = async () => {
    await dropExpiredRoles(database, options.schema, family, logger);
    await database.transaction((sql) => createOrRenewAccount(sql, one));
  };
  const drop = () => database.transaction((sql) => dropRole(sql, options.schema, name));

  try {
    await renew();
  } catch (err) {
    if (!isRunlakeError(err) || err.code !== 'ACCESS_DENIED_BY_STORE') throw err;
    logger.warn({ err }, 'cannot grant the privileges of a limited Postgres role');
    return undefined;
  }
  const address = new URL(options.url);
  address.username = name;
  address.password = password;
  const reason = await findRefusalReason(address.href, options.authorities);
  if (reason !== undefined) {
    logger.warn({ reason }, 'the limited Postgres role cannot connect, dropping it');
    await drop();
    return undefined;
  }
  let renewing: Promise<void> = Promise.resolve();
  const timer = setInterval(() => {
    renewing = renew().catch((err) => logger.warn({ err }, 'the limited Postgres role was not renewed'));
  }, validMs / 5).unref();
  return {
    url: address.href,
    async close() {
      clearInterval(timer);
      await renewing;
      await drop();
    },
  };
}

interface Account extends Pick<LimitedAccountOptions, 'schema' | 'tables' | 'onCreate'> {
  readonly name: string;
  readonly password: string;
  readonly validMs: number;
}

/**
 * Drops expired roles. A role that another user created cannot be dropped, but does no harm, so the error is only
 * logged.
 */
async function dropExpiredRoles(database: Database, schema: string, family: string, logger: Logger): Promise<void> {
  const expiredRoles = await database.query<{ rolname: string }>(
    'SELECT rolname FROM pg_roles WHERE starts_with(rolname, $1) AND rolvaliduntil < clock_timestamp()',
    [family],
  );
  for (const { rolname } of expiredRoles) {
    await database
      .transaction((sql) => dropRole(sql, schema, rolname))
      .catch((err) => logger.warn({ err, account: rolname }, 'an expired Postgres role was not dropped'));
  }
}

// Role statements accept no bound parameters. Names and the password contain only letters, digits and `_`, and come
// from Runlake's code.
async function createOrRenewAccount(
  sql: Sql,
  { name, password, validMs, schema, tables, onCreate }: Account,
): Promise<void> {
  await lockRoleChanges(sql);
  const [found] = await sql.query<{ until: string; exists: boolean }>(
    `SELECT (clock_timestamp() + $1 * interval '1 ms')::text AS until,
       EXISTS (SELECT FROM pg_roles WHERE rolname = $2) AS "exists"`,
    [validMs, name],
  );
  const { until, exists } = found!;
  if (exists) {
    await sql.execute(`ALTER ROLE ${name} VALID UNTIL '${until}'`);
    return;
  }
  await sql.execute(
    `CREATE ROLE ${name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD '${password}' VALID UNTIL '${until}'`,
  );
  await sql.execute(`GRANT USAGE ON SCHEMA ${schema} TO ${name}`);
  const rights = 'SELECT, INSERT, UPDATE, DELETE';
  await sql.execute(`GRANT ${rights} ON ${tables.map((table) => `${schema}.${table}`).join(', ')} TO ${name}`);
  await onCreate?.(sql, name);
}

/** Serialises role changes, because concurrent grants on the same table make one of the transactions fail. */
async function lockRoleChanges(sql: Sql): Promise<void> {
  await sql.query(`SELECT pg_advisory_xact_lock(hashtext('runlake limited account'))`);
}

async function dropRole(sql: Sql, schema: string, name: string): Promise<void> {
  await lockRoleChanges(sql);
  const [role] = await sql.query('SELECT FROM pg_roles WHERE rolname = $1', [name]);
  if (role === undefined) return;
  const grantedTables = await sql.query<{ name: string }>(
    `SELECT DISTINCT c.oid::regclass::text AS name FROM pg_class c, aclexplode(c.relacl) acl, pg_roles r
     WHERE c.relnamespace = $1::regnamespace AND acl.grantee = r.oid AND r.rolname = $2`,
    [schema, name],
  );
  if (grantedTables.length > 0)
    await sql.execute(`REVOKE ALL ON ${grantedTables.map((table) => table.name).join(', ')} FROM ${name}`);
  await sql.execute(`REVOKE ALL ON SCHEMA ${schema} FROM ${name}`);
  await sql.execute(`DROP ROLE ${name}`);
}

async function findRefusalReason(url: string, authorities: readonly string[] | undefined): Promise<string | undefined> {
  const client = new pg.Client({ ...parsePostgresAddress(url, authorities), connectionTimeoutMillis: 10_000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  } finally {
    await client.end().catch(() => undefined);
  }
}
