import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ClickHouse, openClickHouse } from '../../../infra/clickhouse/client.ts';
import { buildLayoutSettings, profiles } from '../../../infra/clickhouse/settings.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { freshStores } from '../../engines/stores.ts';

let stores: Awaited<ReturnType<typeof freshStores>>;
let clickhouse: ClickHouse;

beforeAll(async () => {
  stores = await freshStores();
  clickhouse = stores.clickhouse;
});
afterAll(() => stores?.close());

/** A copy of the profiles: repeat every removal or change of a profile here. */
const both = {
  session_timezone: 'UTC',
  date_time_input_format: 'best_effort',
  date_time_output_format: 'iso',
  output_format_json_quote_64bit_integers: 0,
  output_format_json_quote_64bit_floats: 0,
  output_format_json_quote_decimals: 0,
  output_format_json_quote_denormals: 0,
  output_format_json_escape_forward_slashes: 0,
  output_format_json_named_tuples_as_objects: 1,
  output_format_json_array_of_rows: 1,
  timeout_overflow_mode: 'throw',
  read_overflow_mode: 'throw',
  result_overflow_mode: 'throw',
  group_by_overflow_mode: 'throw',
  sort_overflow_mode: 'throw',
  distinct_overflow_mode: 'throw',
  set_overflow_mode: 'throw',
  join_overflow_mode: 'throw',
  transfer_overflow_mode: 'throw',
};
const reading = {
  distributed_product_mode: 'global',
  optimize_skip_unused_shards: 1,
  skip_unavailable_shards: 0,
  use_query_cache: 0,
  do_not_merge_across_partitions_select_final: 1,
  use_skip_indexes_if_final: 1,
  use_skip_indexes_if_final_exact_mode: 1,
  optimize_read_in_order: 1,
  optimize_move_to_prewhere_if_final: 0,
};
const inserting = {
  async_insert: 0,
  optimize_on_insert: 1,
  insert_deduplicate: 0,
  materialized_views_ignore_errors: 0,
  input_format_avro_allow_missing_fields: 0,
  input_format_null_as_default: 0,
  insert_null_as_default: 0,
  max_partitions_per_insert_block: '100',
  throw_on_max_partitions_per_insert_block: 1,
  max_insert_block_size: '1048449',
  distributed_foreground_insert: 1,
  parallel_distributed_insert_select: '0',
};
const query = { ...both, ...reading, readonly: '2', cancel_http_readonly_queries_on_client_close: 1 };
const statement = { ...both, ...reading, ...inserting };
const fileSettings = {
  http_write_exception_in_output_format: 0,
  output_format_parquet_string_as_string: 1,
  output_format_parquet_compression_method: 'lz4',
  output_format_parquet_version: '2.latest',
  output_format_parquet_compliant_nested_types: 1,
};

/** `wait_end_of_query` exists only in the HTTP interface; client.test.ts tests its effect on failed queries. */
const http = { wait_end_of_query: 1 };

it('the profiles contain exactly these settings', () => {
  expect(profiles).toEqual({
    read: { ...http, ...query },
    insert: { ...http, ...both, ...inserting },
    write: { ...http, ...statement },
    file: { ...query, ...fileSettings, wait_end_of_query: 0 },
    mutation: { ...http, ...statement, mutations_sync: '2', allow_nondeterministic_mutations: 1 },
    bulk: { ...http, ...statement, max_partitions_per_insert_block: '0' },
  });
});

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
    const [row] = await clickhouse.query<{ v: object }>({
      name: 'settings-of-query',
      sql: `SELECT ${buildEffectiveSettingsSql([...Object.keys(query), 'log_comment', 'max_execution_time'])} AS v`,
      timeoutMs: 1_500,
    });
    expect(row?.v).toEqual(expected({ ...query, log_comment: 'settings-of-query', max_execution_time: '1.5' }));
  });

  it.each([
    ['write', statement],
    ['mutation', { ...statement, mutations_sync: '2', allow_nondeterministic_mutations: 1 }],
    ['bulk', { ...statement, max_partitions_per_insert_block: '0' }],
  ] as const)('in a statement of the profile %s', async (profile, settings) => {
    await clickhouse.command({
      name: 'test',
      profile,
      sql: `CREATE TABLE settings_of_${profile} ENGINE = MergeTree ORDER BY () AS SELECT ${buildEffectiveSettingsSql(Object.keys(settings))} AS v`,
    });
    expect(await valuesOf(`settings_of_${profile}`)).toEqual([expected(settings)]);
  });

  it('for an insert', async () => {
    const insert = { ...both, ...inserting };
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
      id: randomUUID(),
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
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    const url = new URL(pathname, `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`);
    Object.assign(url, { username, password });
    const own = openClickHouse({ url: url.href, logger: createLogger('silent', 'test'), timeoutMs: 10_000 });
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
