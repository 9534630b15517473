import { randomUUID } from 'node:crypto';
import { emptyCheckpoint } from '@langchain/langgraph-checkpoint';
import pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { openLimitedAccount } from '../../../infra/postgres/limited-account.ts';
import { openDatabase } from '../../../infra/postgres/pool.ts';
import { LeasedSaver } from '../../../pipelines/agents/checkpoints/leased-saver.ts';
import { openWorkerAccount } from '../../../pipelines/agents/workers/front/graph-isolation.ts';
import { addDeployment } from '../../agents/add-deployment.ts';
import { openThreads, type Threads } from '../../pipelines/agents/checkpoints/threads.ts';
import { logger } from '../../silent-logger.ts';
import { until } from '../until.ts';

let threads: Threads;
let prefix: string;
beforeAll(async () => {
  threads = await openThreads();
  const [{ oid }] = (await threads.database.query<{ oid: number }>(
    'SELECT oid::int8 AS oid FROM pg_database WHERE datname = current_database()',
  )) as [{ oid: number }];
  prefix = `graphs_of_runlake_${oid}_`;
});
afterAll(async () => {
  for (const name of await accounts()) await threads.database.execute(`DROP OWNED BY ${name}; DROP ROLE ${name}`);
  await threads?.close();
});

const accounts = async () =>
  (
    await threads.database.query<{ rolname: string }>('SELECT rolname FROM pg_roles WHERE starts_with(rolname, $1)', [
      prefix,
    ])
  ).map(({ rolname }) => rolname);
const open = (more: Partial<Parameters<typeof openWorkerAccount>[0]> = {}) =>
  openWorkerAccount({
    database: threads.database,
    deploymentId: threads.deploymentId,
    databaseUrl: threads.databaseUrl,
    logger,
    ...more,
  });

test('the account reads and writes state under a lease, and has access to nothing else', async () => {
  const account = await open();
  const pool = new pg.Pool({ connectionString: account.url, max: 2 });
  try {
    expect(account.url).not.toBe(threads.databaseUrl);
    const run = await threads.startRun(await threads.newThread());
    const saver = new LeasedSaver(pool, { leaseToken: run.leaseToken, runId: run.runId });
    const config = { configurable: { thread_id: run.key, checkpoint_ns: '' } };
    const checkpoint = { ...emptyCheckpoint(), channel_values: { a: 1 }, channel_versions: { a: 1 } };
    await saver.put(config, checkpoint, { source: 'loop', step: 1, parents: {} }, { a: 1 });
    await saver.putWrites({ configurable: { ...config.configurable, checkpoint_id: checkpoint.id } }, [['a', 2]], 't');
    expect(await saver.getTuple(config)).toMatchObject({
      checkpoint: { channel_values: { a: 1 } },
      pendingWrites: [{}],
    });
    await threads.endRun(run);
    await expect(saver.deleteThread(run.key)).rejects.toMatchObject({ code: 'LEASE_LOST' });
    await pool.query(`INSERT INTO agents.store_items (deployment_id, namespace, key, value, searchable)
      VALUES ('${threads.deploymentId}', '{a}', 'k', '{}', '{}')`);

    const closed = (
      await threads.database.query<{ name: string }>(
        `SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
       WHERE schemaname IN ('public', 'agents') AND tablename NOT LIKE 'checkpoint%' AND tablename NOT LIKE 'store%'`,
      )
    ).map(({ name }) => name);
    expect(closed).toEqual(expect.arrayContaining(['public.api_keys', 'agents.runs', 'agents.threads']));
    for (const table of closed) {
      for (const sql of [`SELECT FROM ${table}`, `DELETE FROM ${table}`])
        await expect(pool.query(sql), sql).rejects.toMatchObject({ code: '42501' });
    }
    for (const sql of [
      'CREATE TABLE public.mine ()',
      'CREATE TABLE agents.mine ()',
      'CREATE ROLE mine',
      'SET ROLE postgres',
    ])
      await expect(pool.query(sql), sql).rejects.toMatchObject({ code: expect.stringMatching(/^(42501|22023)$/) });
  } finally {
    await pool.end();
    await account.close();
  }
  expect(await accounts()).toEqual([]);
});

test('the account can access only rows of its deployment with any SQL', async () => {
  const { database } = threads;
  const other = await addDeployment(database);
  for (const deployment of [threads.deploymentId, other]) {
    const key = `${deployment}:${randomUUID()}`;
    await database.execute(
      `INSERT INTO agents.checkpoints (thread_id, checkpoint_id, checkpoint) VALUES ('${key}', 'c', '{}');
       INSERT INTO agents.checkpoint_blobs (thread_id, channel, version, type) VALUES ('${key}', 'c', '1', 'json');
       INSERT INTO agents.checkpoint_writes (thread_id, checkpoint_id, task_id, idx, channel, blob)
         VALUES ('${key}', 'c', 't', 0, 'c', '');
       INSERT INTO agents.store_items (deployment_id, namespace, key, value, searchable)
         VALUES ('${deployment}', '{own}', 'k', '{}', '{}');
       INSERT INTO agents.store_vectors (deployment_id, namespace, key, path, embedding)
         VALUES ('${deployment}', '{own}', 'k', '$', '{1}')`,
    );
  }
  const checkpoints = ['checkpoints', 'checkpoint_blobs', 'checkpoint_writes'];
  const foreign = (table: string) =>
    checkpoints.includes(table) ? `starts_with(thread_id, '${other}')` : `deployment_id = '${other}'`;
  const tables = [...checkpoints, 'store_items', 'store_vectors'];
  // An account as earlier releases created it: the same permissions, but no row that binds it to a deployment.
  const unboundAccount = (await openLimitedAccount({
    database,
    url: threads.databaseUrl,
    prefix: 'graphs_of_runlake',
    schema: 'agents',
    tables,
    logger,
  }))!;
  const account = await open();
  const [free, bound] = [unboundAccount.url, account.url].map(
    (connectionString) => new pg.Pool({ connectionString, max: 1 }),
  );
  try {
    for (const table of tables) {
      const count = async (pool: pg.Pool, where: string) =>
        (await pool.query(`SELECT FROM agents.${table} WHERE ${where}`)).rowCount;
      expect(await count(free!, foreign(table)), table).toBe(1);
      expect(await count(bound!, foreign(table)), table).toBe(0);
      expect(await count(bound!, 'true'), table).toBeGreaterThan(0);
      const first = checkpoints.includes(table) ? 'thread_id' : 'deployment_id';
      for (const sql of [
        `UPDATE agents.${table} SET key = key WHERE ${foreign(table)}`.replace(/key/g, first),
        `DELETE FROM agents.${table} WHERE ${foreign(table)}`,
      ])
        expect((await bound!.query(sql)).rowCount, sql).toBe(0);
      await expect(bound!.query(`SET row_security = off; SELECT FROM agents.${table}`)).rejects.toMatchObject({
        code: '42501',
      });
    }
    for (const sql of [
      `INSERT INTO agents.checkpoints (thread_id, checkpoint_id, checkpoint) VALUES ('${other}:x', 'c', '{}')`,
      `UPDATE agents.store_vectors SET deployment_id = '${other}'`,
      'DELETE FROM agents.graph_accounts',
      'SELECT FROM agents.graph_accounts',
      'ALTER TABLE agents.checkpoints DISABLE ROW LEVEL SECURITY',
      'TRUNCATE agents.checkpoints',
      'SET SESSION AUTHORIZATION runlake',
    ])
      await expect(bound!.query(sql), sql).rejects.toMatchObject({ code: '42501' });
  } finally {
    await Promise.all([free!.end(), bound!.end()]);
    await Promise.all([unboundAccount.close(), account.close()]);
  }
  const rows = await database.query(
    `SELECT FROM agents.graph_accounts WHERE deployment_id = '${threads.deploymentId}'`,
  );
  expect(rows.length, 'removed when the next account is created').toBeLessThanOrEqual(1);
});

test('drops accounts of dead processes and keeps those of live ones', async () => {
  const other = await open();
  const [name] = await accounts();
  await threads.database.execute(
    `CREATE ROLE ${prefix}dead LOGIN PASSWORD 'x' VALID UNTIL '2020-01-01';
     GRANT USAGE ON SCHEMA agents TO ${prefix}dead; GRANT SELECT ON agents.checkpoints TO ${prefix}dead`,
  );
  const account = await open();
  const remaining = await accounts();
  expect(remaining).toHaveLength(2);
  expect(remaining).toContain(name);
  await Promise.all([other.close(), account.close()]);
  expect(await accounts()).toEqual([]);
});

test('extends the expiry of an account, and creates a dropped one again', async () => {
  const account = (await openLimitedAccount({
    database: threads.database,
    url: threads.databaseUrl,
    prefix: 'graphs_of_runlake',
    schema: 'agents',
    tables: ['checkpoints'],
    logger,
    validMs: 500,
  }))!;
  const canLogIn = async () => {
    const client = new pg.Client({ connectionString: account.url });
    try {
      await client.connect();
      await client.query('SELECT FROM agents.checkpoints');
      return true;
    } catch {
      return false;
    } finally {
      await client.end();
    }
  };
  const [name] = await accounts();
  const readExpiry = async () =>
    (
      await threads.database.query<{ time: string }>('SELECT rolvaliduntil AS time FROM pg_roles WHERE rolname = $1', [
        name,
      ])
    )[0]?.time;
  const first = await readExpiry();
  await until('its expiry to be extended', async () => (await readExpiry()) !== first);
  await threads.database.execute(`DROP OWNED BY ${name}; DROP ROLE ${name}`);
  await until('the account to be created again', canLogIn);
  await account.close();
  expect(await canLogIn()).toBe(false);
});

test('creates an account for each of four concurrent processes', async () => {
  const created = await Promise.all([open(), open(), open(), open()]);
  expect(new Set(created.map(({ url }) => url)).size).toBe(4);
  expect(await accounts()).toHaveLength(4);
  await Promise.all(created.map((account) => account.close()));
});

test('uses the normal address if no account can be created, and a configured address unchanged', async () => {
  const name = `plain_${randomUUID().replaceAll('-', '')}`;
  await threads.database.execute(`CREATE ROLE ${name} LOGIN PASSWORD 'x'`);
  const url = new URL(threads.databaseUrl);
  url.username = name;
  url.password = 'x';
  const database = openDatabase({ url: url.href, logger, timeoutMs: 10_000 });
  onTestFinished(async () => {
    await database.close();
    await threads.database.execute(`DROP ROLE ${name}`);
  });
  expect((await open({ database, databaseUrl: url.href })).url).toBe(url.href);
  expect((await open({ configuredUrl: 'postgres://a@b/c' })).url).toBe('postgres://a@b/c');
  expect(await accounts()).toEqual([]);
});

test('a role with CREATEROLE that is not a superuser can create and drop an account', async () => {
  const name = `maker_${randomUUID().replaceAll('-', '')}`;
  const tables =
    'agents.checkpoints, agents.checkpoint_blobs, agents.checkpoint_writes, agents.store_items, agents.store_vectors';
  await threads.database.execute(
    `CREATE ROLE ${name} LOGIN CREATEROLE PASSWORD 'x'; GRANT USAGE ON SCHEMA agents TO ${name} WITH GRANT OPTION;
     GRANT SELECT, INSERT, UPDATE, DELETE ON ${tables} TO ${name} WITH GRANT OPTION;
     GRANT SELECT, INSERT, UPDATE, DELETE ON agents.graph_accounts TO ${name}`,
  );
  const url = new URL(threads.databaseUrl);
  url.username = name;
  url.password = 'x';
  const database = openDatabase({ url: url.href, logger, timeoutMs: 10_000 });
  onTestFinished(async () => {
    await database.close();
    await threads.database.execute(`DROP OWNED BY ${name}; DROP ROLE ${name}`);
  });
  const account = await open({ database, databaseUrl: url.href });
  expect(await accounts()).toHaveLength(1);
  await account.close();
  expect(await accounts()).toEqual([]);
});
