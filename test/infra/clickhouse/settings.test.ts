import { randomUUID } from 'node:crypto';
import { createServer, request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { type ClickHouse, openClickHouse } from '../../../infra/clickhouse/client.ts';
import { buildLayoutSettings, profiles } from '../../../infra/clickhouse/settings.ts';
import { freshStores } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';

const stores = forSuite(() => freshStores());
const clickhouse = createProxyTo(() => stores.clickhouse);

/**
 * Returns the settings of a profile that a statement can read. `wait_end_of_query` exists only in the HTTP interface;
 * client.test.ts tests its effect on failed queries.
 */
function readable(profile: keyof typeof profiles): Readonly<Record<string, unknown>> {
  const { wait_end_of_query: _, ...settings } = profiles[profile];
  return settings;
}

/** Returns an SQL expression for the effective settings, as text by name. */
const buildEffectiveSettingsSql = (names: readonly string[]) =>
  `map(${names.map((name) => `'${name}', toString(getSetting('${name}'))`).join(', ')})`;

const expected = (settings: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, asText(value)]));

/** Some switches are numbers, others are booleans: `toString` distinguishes them, the HTTP interface does not. */
const asText = (value: unknown) =>
  value === 0 || value === 1 ? expect.stringMatching(value === 1 ? /^(1|true)$/ : /^(0|false)$/) : String(value);

describe('settings that the client sends are effective', () => {
  it('for a query', async () => {
    const settings = { ...readable('read'), log_comment: 'settings-of-query', max_execution_time: '1.5' };
    const [row] = await clickhouse.query<{ v: object }>({
      name: 'settings-of-query',
      sql: `SELECT ${buildEffectiveSettingsSql(Object.keys(settings))} AS v`,
      timeoutMs: 1_500,
    });
    expect(row?.v).toEqual(expected(settings));
  });

  it.each(['write', 'mutation', 'bulk'] as const)('in a statement of the profile %s', async (profile) => {
    const settings = readable(profile);
    await clickhouse.command({
      name: 'test',
      profile,
      sql: `CREATE TABLE settings_of_${profile} ENGINE = MergeTree ORDER BY () AS SELECT ${buildEffectiveSettingsSql(Object.keys(settings))} AS v`,
    });
    expect(await valuesOf(`settings_of_${profile}`)).toEqual([expected(settings)]);
  });

  it('for an insert', async () => {
    const insert = readable('insert');
    await clickhouse.command({
      name: 'test',
      sql: `CREATE TABLE settings_of_insert (n UInt8, v Map(String, String) DEFAULT ${buildEffectiveSettingsSql(Object.keys(insert))})
        ENGINE = MergeTree ORDER BY n`,
    });
    await clickhouse.insertBody({
      name: 'test',
      table: 'settings_of_insert',
      columns: ['n'],
      format: 'JSONEachRow',
      body: Buffer.from('{"n":1}'),
    });
    expect(await valuesOf('settings_of_insert')).toEqual([expected(insert)]);
  });
});

const valuesOf = async (table: string) =>
  (await clickhouse.query<{ v: object }>({ name: 'test', sql: `SELECT v FROM ${table}` })).map(({ v }) => v);

describe('settings of the server for its users are overridden', () => {
  /**
   * Runs `use` with a ClickHouse client whose statements have `settings` as their defaults: a proxy adds an HTTP
   * session, in which the settings were set, to each statement. (To create a user with these defaults requires
   * permissions that the test user does not have.)
   */
  async function withDefaults<Result>(settings: string, use: (clickhouse: ClickHouse) => Promise<Result>) {
    const { origin, username, password, pathname } = new URL(stores.clickhouseUrl);
    const session = `session_id=${randomUUID()}`;
    const headers = { 'X-ClickHouse-User': username, 'X-ClickHouse-Key': decodeURIComponent(password) };
    const set = await fetch(`${origin}/?${session}`, { method: 'POST', headers, body: `SET ${settings}` });
    expect(await set.text()).toBe('');
    const proxy = createServer((incoming, outgoing) => {
      const { method, headers } = incoming;
      const forwarded = request(`${origin}${incoming.url}&${session}`, { method, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(outgoing);
      });
      forwarded.on('error', () => outgoing.destroy());
      incoming.pipe(forwarded);
    });
    const url = new URL(pathname, `http://127.0.0.1:${await listenOnLoopback(proxy)}`);
    Object.assign(url, { username, password });
    const own = openClickHouse({ url: url.href, logger, timeoutMs: 10_000 });
    try {
      return await use(own);
    } finally {
      await own.close();
      proxy.closeAllConnections();
      proxy.close();
    }
  }

  it('a timeout of an aggregation is an error, not a partial sum', async () => {
    const sum = withDefaults("timeout_overflow_mode = 'break', max_block_size = 1", (own) =>
      own.query({ name: 'slow-sum', sql: 'SELECT sum(sleepEachRow(0.05) + 1) AS v FROM numbers(200)', timeoutMs: 300 }),
    );
    await expect(sum).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
  });
});

describe('settings of a layout', () => {
  const cluster = { kind: 'cluster', cluster: 'c', shards: 2, hasKeeper: true } as const;
  it('make an insert wait for all replicas, and nothing else', () => {
    const quorum = { insert_quorum: '3', insert_quorum_parallel: 1 };
    for (const profile of ['insert', 'write', 'mutation', 'bulk'] as const) {
      expect(buildLayoutSettings({ ...cluster, replicas: 3 }, profile)).toEqual(quorum);
    }
    for (const profile of ['read', 'file'] as const) {
      expect(buildLayoutSettings({ ...cluster, replicas: 3 }, profile)).toEqual({});
    }
    expect(buildLayoutSettings({ ...cluster, replicas: 1 }, 'insert')).toEqual({});
    expect(buildLayoutSettings({ kind: 'single' }, 'insert')).toEqual({});
  });

  it('make replicas of a shared database read what is acknowledged', () => {
    expect(buildLayoutSettings({ kind: 'replicated', replicas: 3, isShared: true }, 'read')).toEqual({
      select_sequential_consistency: '1',
    });
  });
});
