/**
 * An account of Postgres for code that is not to have ours, made at the start of a process and gone with it.
 *
 * Invariant: an account whose time has passed belongs to nobody. Its process puts the time off for as long as it lives.
 *
 *   1. Accounts whose time has passed are dropped; ours is made and given its rights. Each in one transaction, one process at a time.
 *   2. It is tried. What keeps it from connecting (rules for addresses, a pooler with a list of users) is for the caller to judge.
 *   3. Several times within its time, step 1 again: the time is put off. If another process took ours for dead, because this one was
 *      stopped for long, it is made anew with the same password.
 *   4. `close` drops it. A process that dies before leaves it to the others, or to the next start.
 */
import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { isRunlakeError } from '../errors/runlake-error.ts';
import type { Logger } from '../telemetry/logger.ts';
import { postgresAddress } from './address.ts';
import type { Database, Sql } from './database.ts';

export interface LimitedAccountOptions {
  readonly database: Database;
  /** The address of `database`. */
  readonly url: string;
  readonly authorities?: readonly string[] | undefined;
  /** What names of such accounts begin with: letters and `_`. */
  readonly prefix: string;
  readonly schema: string;
  /** Tables of the schema whose rows it may read and change. It may read and do nothing else that not everybody may. */
  readonly tables: readonly string[];
  /** In the transaction that makes the account. */
  readonly whenMade?: ((sql: Sql, name: string) => Promise<void>) | undefined;
  readonly logger: Logger;
  /** Default ten minutes. */
  readonly validMs?: number;
}

export interface LimitedAccount {
  /** The address with the account in it. */
  readonly url: string;
  /** Drops it. Sessions that it still has go on without rights. */
  close(): Promise<void>;
}

/**
 * @returns undefined where the account of `database` may not make others, or where the new one cannot connect.
 * @throws what the database refuses
 */
export async function openLimitedAccount(options: LimitedAccountOptions): Promise<LimitedAccount | undefined> {
  const { database, prefix, logger, validMs = 600_000 } = options;
  const [own] = await database.query<{ able: boolean; oid: number }>(
    `SELECT r.rolcreaterole OR r.rolsuper AS able, d.oid::int8 AS oid FROM pg_roles r, pg_database d
     WHERE r.rolname = current_user AND d.datname = current_database()`,
  );
  if (!own?.able) return undefined;
  // Rights are those within one database, and so is what can be dropped.
  const family = `${prefix}_${own.oid}_`;
  const name = `${family}${randomBytes(6).toString('hex')}`;
  const password = randomBytes(24).toString('hex');
  const { schema, tables, whenMade } = options;
  const one: Account = { schema, tables, whenMade, name, password, validMs };
  const uphold = async () => {
    await dropDead(database, options.schema, family, logger);
    await database.transaction((sql) => upholdAccount(sql, one));
  };
  const drop = () => database.transaction((sql) => dropRole(sql, options.schema, name));

  try {
    await uphold();
  } catch (err) {
    if (!isRunlakeError(err) || err.code !== 'ACCESS_DENIED_BY_STORE') throw err;
    logger.warn({ err }, 'a limited account in Postgres may be made, but not given its rights');
    return undefined;
  }
  const address = new URL(options.url);
  address.username = name;
  address.password = password;
  const reason = await whyRefused(address.href, options.authorities);
  if (reason !== undefined) {
    logger.warn({ reason }, 'the limited account that was made in Postgres cannot connect, and is dropped again');
    await drop();
    return undefined;
  }
  let upholding: Promise<void> = Promise.resolve();
  const timer = setInterval(() => {
    upholding = uphold().catch((err) => logger.warn({ err }, 'the limited account in Postgres was not upheld'));
  }, validMs / 5).unref();
  return {
    url: address.href,
    async close() {
      clearInterval(timer);
      await upholding;
      await drop();
    },
  };
}

interface Account extends Pick<LimitedAccountOptions, 'schema' | 'tables' | 'whenMade'> {
  readonly name: string;
  readonly password: string;
  readonly validMs: number;
}

/** One that cannot be dropped, because another account made it, keeps nobody from anything. */
async function dropDead(database: Database, schema: string, family: string, logger: Logger): Promise<void> {
  const dead = await database.query<{ rolname: string }>(
    'SELECT rolname FROM pg_roles WHERE starts_with(rolname, $1) AND rolvaliduntil < clock_timestamp()',
    [family],
  );
  for (const { rolname } of dead) {
    await database
      .transaction((sql) => dropRole(sql, schema, rolname))
      .catch((err) => logger.warn({ err, account: rolname }, 'an account whose process is gone was not dropped'));
  }
}

// Names and the password are made of letters, digits and `_` here and in our own code: roles take no bound parameters.
async function upholdAccount(sql: Sql, { name, password, validMs, schema, tables, whenMade }: Account): Promise<void> {
  await oneAtATime(sql);
  const [found] = await sql.query<{ until: string; there: boolean }>(
    `SELECT (clock_timestamp() + $1 * interval '1 ms')::text AS until,
       EXISTS (SELECT FROM pg_roles WHERE rolname = $2) AS there`,
    [validMs, name],
  );
  const { until, there } = found!;
  if (there) {
    await sql.execute(`ALTER ROLE ${name} VALID UNTIL '${until}'`);
    return;
  }
  await sql.execute(
    `CREATE ROLE ${name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD '${password}' VALID UNTIL '${until}'`,
  );
  await sql.execute(`GRANT USAGE ON SCHEMA ${schema} TO ${name}`);
  const rights = 'SELECT, INSERT, UPDATE, DELETE';
  await sql.execute(`GRANT ${rights} ON ${tables.map((table) => `${schema}.${table}`).join(', ')} TO ${name}`);
  await whenMade?.(sql, name);
}

/** Rights of one table that two give at once are an error to one of them. */
async function oneAtATime(sql: Sql): Promise<void> {
  await sql.query(`SELECT pg_advisory_xact_lock(hashtext('runlake limited account'))`);
}

async function dropRole(sql: Sql, schema: string, name: string): Promise<void> {
  await oneAtATime(sql);
  const [there] = await sql.query('SELECT FROM pg_roles WHERE rolname = $1', [name]);
  if (there === undefined) return;
  const granted = await sql.query<{ name: string }>(
    `SELECT DISTINCT c.oid::regclass::text AS name FROM pg_class c, aclexplode(c.relacl) acl, pg_roles r
     WHERE c.relnamespace = $1::regnamespace AND acl.grantee = r.oid AND r.rolname = $2`,
    [schema, name],
  );
  if (granted.length > 0)
    await sql.execute(`REVOKE ALL ON ${granted.map((table) => table.name).join(', ')} FROM ${name}`);
  await sql.execute(`REVOKE ALL ON SCHEMA ${schema} FROM ${name}`);
  await sql.execute(`DROP ROLE ${name}`);
}

async function whyRefused(url: string, authorities: readonly string[] | undefined): Promise<string | undefined> {
  const client = new pg.Client({ ...postgresAddress(url, authorities), connectionTimeoutMillis: 10_000 });
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
