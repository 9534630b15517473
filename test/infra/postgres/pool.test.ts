import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { getViolatedConstraint } from '../../../infra/postgres/database-error.ts';
import { type Database, openDatabase } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { deferred } from '../deferred.ts';
import { openTcpProxy } from '../tcp-proxy.ts';
import { until } from '../until.ts';

const stores = forSuite(() => freshStores());
let database: Database;

beforeAll(async () => {
  database = openDatabase({ url: stores.databaseUrl, logger, timeoutMs: 1_000, maxConnections: 2 });
  await database.execute(
    'CREATE TABLE things (id integer PRIMARY KEY, name text, CONSTRAINT things_by_name UNIQUE (name))',
  );
});
afterAll(async () => {
  await database?.close();
});

const one = async (expression: string, params: unknown[] = []) =>
  (await database.query<{ v: unknown }>(`SELECT ${expression} AS v`, params))[0]?.v;

const thing = (id: number) => one('(SELECT count(*) FROM things WHERE id = $1)', [id]);

describe('values', () => {
  it.each<[string, unknown]>([
    ["timestamptz '2026-01-02 03:04:05.123456+02'", '2026-01-02T01:04:05.123456Z'],
    ["timestamptz '2026-01-02 03:04:05.1+00'", '2026-01-02T03:04:05.100000Z'],
    ["timestamptz '2026-01-02 03:04:05+00'", '2026-01-02T03:04:05.000000Z'],
    ["timestamptz 'infinity'", 'infinity'],
    ["timestamptz '12026-01-02 03:04:05+00'", '12026-01-02T03:04:05.000000Z'],
    ["ARRAY[timestamptz '2026-01-02 03:04:05+00', NULL]", ['2026-01-02T03:04:05.000000Z', null]],
    ["timestamp '2026-01-02 03:04:05.5'", '2026-01-02 03:04:05.5'],
    ["date '2026-01-02'", '2026-01-02'],
    ['9007199254740991::int8', 9_007_199_254_740_991],
    ['9007199254740993::int8', '9007199254740993'],
    ['-1::int8', -1],
    ['ARRAY[1::int8, 9007199254740993, NULL]', [1, '9007199254740993', null]],
    ['1.50::numeric', '1.50'],
    ['\'{"a":[1,null]}\'::jsonb', { a: [1, null] }],
    ["'\\x00ff'::bytea", Buffer.from([0, 255])],
    ["'00000000-0000-0000-0000-00000000000A'::uuid", '00000000-0000-0000-0000-00000000000a'],
    ["ARRAY['a', 'b,c', '\"']", ['a', 'b,c', '"']],
    ['NULL', null],
    ['true', true],
  ])('%s comes back', async (expression, expected) => {
    expect(await one(expression)).toEqual(expected);
  });

  it.each<[string, unknown, unknown]>([
    ['timestamptz', '2026-01-02T03:04:05.123456Z', '2026-01-02T03:04:05.123456Z'],
    ['text[]', ['a', '"b"', 'c,d'], ['a', '"b"', 'c,d']],
    ['jsonb', { a: "it's" }, { a: "it's" }],
    ['bytea', Buffer.from([0, 1, 255]), Buffer.from([0, 1, 255])],
    ['int8', 9_007_199_254_740_991, 9_007_199_254_740_991],
    ['text', "'; DROP TABLE things; --", "'; DROP TABLE things; --"],
  ])('a parameter of type %s goes in as it is', async (type, value, expected) => {
    expect(await one(`$1::${type}`, [value])).toEqual(expected);
  });

  it('returns the number of changed rows', async () => {
    expect(await database.execute('INSERT INTO things VALUES (1, $1), (2, $2)', ['a', 'b'])).toBe(2);
    expect(await database.execute('DELETE FROM things')).toBe(2);
  });

  it('prepares a named statement once', async () => {
    for (const value of [1, 2]) {
      await database.query('SELECT $1::int AS v', [value], { name: 'prepared-by-test' });
    }
    const prepared = await database.query(
      "SELECT generic_plans + custom_plans AS uses FROM pg_prepared_statements WHERE name = 'prepared-by-test'",
    );
    expect(prepared).toEqual([{ uses: 2 }]);
  });
});

describe('transaction', () => {
  it('commits', async () => {
    const result = await database.transaction(async (tx) => {
      await tx.execute("INSERT INTO things VALUES (10, 'ten')");
      return 'done';
    });
    expect(result).toBe('done');
    expect(await thing(10)).toBe(1);
  });

  it('rolls back if the work rejects, and rejects with the same error', async () => {
    const reason = new Error('changed my mind');
    const work = database.transaction(async (tx) => {
      await tx.execute("INSERT INTO things VALUES (11, 'eleven')");
      throw reason;
    });
    await expect(work).rejects.toBe(reason);
    expect(await thing(11)).toBe(0);
  });

  it('rejects if the work ignored a failed statement', async () => {
    const work = database.transaction(async (tx) => {
      await tx.execute("INSERT INTO things VALUES (12, 'twelve')");
      await tx.execute('SELECT 1 / 0').catch(() => undefined);
    });
    await expect(work).rejects.toMatchObject({ code: 'DATABASE_QUERY_FAILED' });
    expect(await thing(12)).toBe(0);
  });

  it('has its own statement timeout', async () => {
    const inside = await database.transaction((tx) => tx.query("SELECT current_setting('statement_timeout') AS v"), {
      timeoutMs: 60_000,
    });
    expect(inside).toEqual([{ v: '1min' }]);
    expect(await one("current_setting('statement_timeout')")).toBe('1s');
  });
});

describe('failures', () => {
  it('a unique violation contains its constraint and leaves the connection usable', async () => {
    await database.execute("INSERT INTO things VALUES (20, 'twenty')");
    const before = await one('pg_backend_pid()');
    const error = await database.execute("INSERT INTO things VALUES (21, 'twenty')").catch((raw) => raw);
    expect(error).toMatchObject({ code: 'DATABASE_QUERY_FAILED' });
    expect(getViolatedConstraint(error)).toBe('things_by_name');
    expect(`${error.message} ${JSON.stringify(error)}`).not.toContain('twenty');
    expect(await one('pg_backend_pid()')).toBe(before);
  });

  it('cancels a statement that exceeds the timeout', async () => {
    await expect(database.query('SELECT pg_sleep(30)')).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
  });

  it('waits for a free connection at most for the timeout', async () => {
    const { promise: held, resolve: free } = deferred();
    const holders = Array.from({ length: 6 }, () => database.transaction(() => held));
    await expect(database.ping()).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
    free();
    await Promise.all(holders);
    await database.ping();
  });

  it('leaves a connection for others if one organisation holds its maximum', async () => {
    const { promise: held, resolve: free } = deferred();
    const ping = (organizationId: string) => runForTenant({ organizationId }, () => database.ping());
    const holders = runForTenant({ organizationId: 'a' }, () => [1, 2].map(() => database.transaction(() => held)));
    const refused = expect(ping('a')).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
    for (let n = 0; n < 3; n++) await Promise.all([ping('b'), ping('c'), database.ping()]);
    await refused;
    const waiting = ping('a');
    free();
    await Promise.all([...holders, waiting]);
  });

  it("keeps connections for Runlake's own work if organisations hold all that they may", async () => {
    const { promise: held, resolve: free } = deferred();
    const hold = (organizationId: string) => runForTenant({ organizationId }, () => database.transaction(() => held));
    const holders = ['a', 'a', 'b'].map(hold);
    for (let n = 0; n < 3; n++) await database.ping();
    const gone = new AbortController();
    const left = runForTenant({ organizationId: 'a', disconnected: gone.signal }, () => database.ping());
    gone.abort(new Error('gone'));
    await expect(left).rejects.toThrow('gone');
    free();
    await Promise.all(holders);
  });

  it('a failure to connect leaves the connections of an organisation free', async () => {
    const url = new URL(stores.databaseUrl);
    url.port = '1';
    const other = openDatabase({ url: url.href, logger, timeoutMs: 1_000, maxConnections: 2 });
    for (let n = 0; n < 4; n++) {
      const failed = runForTenant({ organizationId: 'a' }, () => other.ping());
      await expect(failed).rejects.toMatchObject({ cause: { code: 'ECONNREFUSED' } });
    }
    await other.close();
  });

  it.each([
    ['a database that is not there', (url: URL) => (url.pathname = '/nowhere'), 'ACCESS_DENIED_BY_STORE'],
    ['a closed port', (url: URL) => (url.port = '1'), 'DATABASE_UNAVAILABLE'],
    ['a host that does not exist', (url: URL) => (url.hostname = 'nowhere.invalid'), 'DATABASE_UNAVAILABLE'],
  ])('%s', async (_, change, code) => {
    const url = new URL(stores.databaseUrl);
    change(url);
    const other = openDatabase({ url: url.href, logger, timeoutMs: 1_000 });
    await expect(other.ping()).rejects.toMatchObject({ code });
    await other.close();
  });
});

describe('when Postgres ends connections', () => {
  const endOtherConnections = () =>
    stores.database.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'runlake' AND datname = current_database() AND pid <> pg_backend_pid()",
    );
  const connections = async () =>
    Number(
      (
        await stores.database.query<{ n: number }>(
          "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'runlake' AND datname = current_database() AND pid <> pg_backend_pid()",
        )
      )[0]?.n,
    );

  it('later calls replace idle ones', async () => {
    await Promise.all([database.ping(), database.ping()]);
    await endOtherConnections();
    await until('the connections to end', async () => (await connections()) === 0);
    await until('a call to succeed', () =>
      database.ping().then(
        () => true,
        () => false,
      ),
    );
  });

  it('replaces a connection to a server that accepts no writes, as an earlier primary after a failover', async () => {
    const pool = openDatabase({ url: stores.databaseUrl, logger, timeoutMs: 1_000, maxConnections: 1 });
    onTestFinished(() => pool.close());
    await pool.execute('SET default_transaction_read_only = on');
    const insert = () => pool.execute('INSERT INTO things (id) VALUES (700)');
    await expect(insert()).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
    expect(await insert()).toBe(1);
  });

  it('a transaction between two statements fails and is rolled back, and the process continues', async () => {
    const work = database.transaction(async (tx) => {
      await tx.execute("INSERT INTO things VALUES (30, 'thirty')");
      await endOtherConnections();
      await until('the connection to end', async () => (await connections()) === 0);
      await tx.query('SELECT 1');
    });
    await expect(work).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
    expect(await thing(30)).toBe(0);
  });

  it('gives up a server that stops responding after the timeout', async () => {
    const url = new URL(stores.databaseUrl);
    const proxy = await openTcpProxy(url.hostname, Number(url.port));
    url.host = `127.0.0.1:${proxy.port}`;
    const proxied = openDatabase({ url: url.href, logger, timeoutMs: 300 });
    await proxied.ping();
    proxy.freeze(true);
    await expect(proxied.ping()).rejects.toMatchObject({ code: 'DATABASE_UNAVAILABLE' });
    proxy.freeze(false);
    await proxied.ping();
    await proxied.close();
    await proxy.close();
  });

  it('logs a lost idle connection, unless the pool is closing', async () => {
    const lines: unknown[] = [];
    const listening = { ...logger, warn: (line: unknown) => lines.push(line) } as unknown as Logger;
    const end = () =>
      database.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database() AND state = 'idle'",
      );
    const watched = openDatabase({ url: stores.databaseUrl, logger: listening, timeoutMs: 1_000 });
    await watched.ping();
    await end();
    await until('the loss to be logged', () => lines.length === 1);
    await watched.ping();
    const closed = watched.close();
    await end();
    await closed;
    expect(lines).toHaveLength(1);
  });
});
