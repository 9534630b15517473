import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { QueryParameter } from '../../../infra/clickhouse/clickhouse.ts';
import { type ClickHouse, openClickHouse } from '../../../infra/clickhouse/client.ts';
import { freshStores } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';
import { openTcpProxy, type TcpProxy } from '../tcp-proxy.ts';
import { until } from '../until.ts';

const stores = forSuite(() => freshStores());
const clickhouse = createProxyTo(() => stores.clickhouse);

const one = async (sql: string, params = {}) =>
  (await clickhouse.query<{ v: unknown }>({ name: 'test', sql, params }))[0]?.v;

describe('values', () => {
  it.each<[string, unknown]>([
    ["toDateTime64('2026-01-02 03:04:05.123456', 6, 'UTC')", '2026-01-02T03:04:05.123456Z'],
    ["toDateTime64('2026-01-02 03:04:05', 6, 'Asia/Tokyo')", '2026-01-01T18:04:05.000000Z'],
    ['toUInt64(9007199254740991)', 9_007_199_254_740_991],
    ['toInt64(-5)', -5],
    ["toUUID('00000000-0000-0000-0000-00000000000A')", '00000000-0000-0000-0000-00000000000a'],
    ["CAST((1, 'x') AS Tuple(a UInt8, b String))", { a: 1, b: 'x' }],
    ["(1, 'x')", [1, 'x']],
    ['CAST(NULL AS Nullable(String))', null],
    ["'a/b\\n\\0\\\\ü'", 'a/b\n\0\\ü'],
    ['\'{"n":12345678901234567890}\'', '{"n":12345678901234567890}'],
    ['toDecimal64(1.25, 4)', 1.25],
  ])('%s comes back', async (expression, expected) => {
    expect(await one(`SELECT ${expression} AS v`)).toEqual(expected);
  });

  it.each<[string, QueryParameter]>([
    ['String', "it's\t\\ \n ü"],
    ['Int64', 9_007_199_254_740_991],
    ['Nullable(String)', null],
    ['Array(String)', ["a'b", 'c\\d', 'é\n']],
    ['Bool', true],
    ['Bool', false],
    ['Array(Nullable(Int64))', [1, null]],
    ['String', ''],
    ['String', 'a\u0000b&c=d+e%20\r'],
  ])('a parameter of type %s goes in as it is', async (type, value) => {
    expect(await one(`SELECT {p:${type}} AS v`, { p: value })).toEqual(value);
  });

  it('a query without rows returns an empty list', async () => {
    expect(await clickhouse.query({ name: 'test', sql: 'SELECT 1 AS v WHERE 0' })).toEqual([]);
  });

  it('a comment at the end of a statement does not hide the FORMAT clause', async () => {
    expect(await one('SELECT 1 AS v -- the end')).toBe(1);
  });

  it('accepts key lists of any length as an external table', async () => {
    const rows = Array.from({ length: 50_000 }, (_, index) => [randomUUID(), index]);
    const found = await clickhouse.query({
      name: 'test',
      sql: 'SELECT count() AS rows, sum(b) AS total FROM keys',
      externalTable: { name: 'keys', structure: 'a UUID, b UInt32', rows },
    });
    expect(found).toEqual([{ rows: 50_000, total: 1_249_975_000 }]);
  });

  const text = "a'\\\t\r\n-- é€😀%";
  const rows = [[1], [2]];
  it.each<[string, string, QueryParameter]>([
    ['a text of 60 KB', 'String', text.repeat(3_000)],
    ['a text of 2 MB', 'String', text.repeat(100_000)],
    ['a list of 100 texts of 30 KB', 'Array(String)', Array.from({ length: 100 }, (_, n) => n + text.repeat(1_500))],
    ['texts that are too long for a field among others', 'Array(String)', ['a', text.repeat(9_000), '', 'b', text]],
    ['20,000 ids', 'Array(UUID)', Array.from({ length: 20_000 }, () => randomUUID())],
    ['surrogates around the limit of a field', 'String', `${'a'.repeat(39_999)}😀${'b'.repeat(39_998)}😀`],
  ])('%s can be a parameter, also with an external table', async (_name, type, p) => {
    const sql = `SELECT {p:${type}} AS v`;
    expect(await one(sql, { p })).toEqual(p);
    const externalTable = { name: 'keys', structure: 'a UInt8', rows };
    const found = await clickhouse.query({
      name: 'test',
      sql: `${sql}, (SELECT sum(a) FROM keys) AS total, {other:UInt8} AS other`,
      params: { p, other: 7 },
      externalTable,
    });
    expect(found).toEqual([{ v: p, total: 3, other: 7 }]);
  });

  it('a statement with an external table can be as long as one without', async () => {
    const sql = `SELECT count() AS c, '${'é'.repeat(100_000)}' AS t FROM keys`;
    const externalTable = { name: 'keys', structure: 'a UInt8', rows };
    expect(
      await clickhouse.query({ name: 'test', sql, externalTable, settings: { max_query_size: '1000000' } }),
    ).toMatchObject([{ c: 2 }]);
  });

  it('an empty external table has no rows', async () => {
    const externalTable = { name: 'keys', structure: 'a UUID', rows: [] };
    expect(await clickhouse.query({ name: 'test', sql: 'SELECT count() AS c FROM keys', externalTable })).toEqual([
      { c: 0 },
    ]);
  });

  it('returns raw formats byte for byte', async () => {
    const bytes = await clickhouse.queryText({ name: 'test', sql: "SELECT unhex('00ff0a')", format: 'RawBLOB' });
    expect(bytes).toEqual(Buffer.from([0x00, 0xff, 0x0a]));
  });
});

describe('failures', () => {
  it('a query that exceeds its timeout ends in the client and on the server', async () => {
    const slow = {
      name: 'slow-query',
      sql: 'SELECT sum(sleepEachRow(0.1)) FROM numbers(200) SETTINGS max_block_size = 1',
    };
    await expect(clickhouse.query({ ...slow, timeoutMs: 300 })).rejects.toMatchObject({
      code: 'CLICKHOUSE_UNAVAILABLE',
      retryAfterSeconds: 1,
    });
    await waitUntilNoneRunning('slow-query');
  });

  it('aborting a query ends it on the server and rejects with the abort reason', async () => {
    const controller = new AbortController();
    const sql = 'SELECT sum(sleepEachRow(0.1)) FROM numbers(200) SETTINGS max_block_size = 1';
    const running = clickhouse.query({ name: 'aborted-query', sql, signal: controller.signal });
    await until('the query to run', async () => (await runningQueries('aborted-query')) === 1);
    const reason = new Error('the client went away');
    controller.abort(reason);
    await expect(running).rejects.toBe(reason);
    await waitUntilNoneRunning('aborted-query');
  });

  it.each([
    ['fails the query', {}],
    ['is found at the end of the body if the status was already sent', { wait_end_of_query: 0 as const }],
  ])('an exception after many rows %s', async (_, settings) => {
    const late = clickhouse.queryText({
      name: 'test',
      sql: 'SELECT throwIf(number = 3000000), number FROM numbers(4000000)',
      format: 'TSV',
      settings: { ...settings, max_threads: 1 },
    });
    await expect(late).rejects.toMatchObject({ code: 'CLICKHOUSE_QUERY_FAILED', cause: { code: '395' } });
  });

  it('refuses a query that writes', async () => {
    const writes = clickhouse.query({ name: 'test', sql: 'DROP TABLE runs' });
    await expect(writes).rejects.toMatchObject({ code: 'CLICKHOUSE_QUERY_FAILED' });
  });

  it('error messages do not contain the server text', async () => {
    const error = await clickhouse.query({ name: 'find-secret', sql: "SELECT secret_column, 'x'" }).catch((raw) => raw);
    expect(error.code).toBe('CLICKHOUSE_QUERY_FAILED');
    expect(`${error.message} ${JSON.stringify(error)}`).not.toContain('secret_column');
    expect(error.cause.message).toMatch(/secret_column.*\[query find-secret, id [0-9a-f-]{36}\]/s);
  });

  it.each([
    ['a wrong password', (url: URL) => (url.password = 'wrong'), 'ACCESS_DENIED_BY_STORE'],
    ['an unknown database', (url: URL) => (url.pathname = '/nowhere'), 'ACCESS_DENIED_BY_STORE'],
    ['a closed port', (url: URL) => (url.port = '1'), 'CLICKHOUSE_UNAVAILABLE'],
    ['a host that does not exist', (url: URL) => (url.hostname = 'nowhere.invalid'), 'CLICKHOUSE_UNAVAILABLE'],
  ])('%s', async (_, change, code) => {
    const url = new URL(stores.clickhouseUrl);
    change(url);
    const other = openClickHouse({ url: url.href, logger, timeoutMs: 5_000 });
    await expect(other.ping()).rejects.toMatchObject({ code });
    await other.close();
  });
});

describe('a response that does not come from ClickHouse', () => {
  it.each([
    [403, 'ACCESS_DENIED_BY_STORE'],
    [404, 'CLICKHOUSE_QUERY_FAILED'],
    [502, 'CLICKHOUSE_UNAVAILABLE'],
  ])('is classified by its status: %i', async (status, code) => {
    const server = createServer((_, answer) => answer.writeHead(status).end('<html>a proxy</html>'));
    const port = await listenOnLoopback(server);
    const other = openClickHouse({ url: `http://u:p@127.0.0.1:${port}/d`, logger, timeoutMs: 5_000 });
    await expect(other.ping()).rejects.toMatchObject({ code, cause: { code: `HTTP ${status}` } });
    await other.close();
    await new Promise((resolve) => server.close(resolve));
  });
});

describe('connections', () => {
  let proxy: TcpProxy;
  let proxied: ClickHouse;
  beforeAll(async () => {
    const url = new URL(stores.clickhouseUrl);
    proxy = await openTcpProxy(url.hostname, Number(url.port));
    url.host = `127.0.0.1:${proxy.port}`;
    proxied = openClickHouse({ url: url.href, logger, timeoutMs: 5_000, maxConnections: 2 });
  });
  afterAll(async () => {
    await proxied?.close();
    await proxy?.close();
  });

  it('statements that exceed the connection limit wait, and all complete', async () => {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        proxied.query({ name: 'test', sql: 'SELECT {n:UInt8} AS n', params: { n } }),
      ),
    );
    expect(answers.flat()).toEqual(Array.from({ length: 20 }, (_, n) => ({ n })));
    expect(proxy.connections()).toBeLessThanOrEqual(2);
  });

  it('does not reuse an aborted connection, and reuses later ones', async () => {
    const sql = 'SELECT sum(sleepEachRow(0.1)) FROM numbers(200) SETTINGS max_block_size = 1';
    const controllers = [new AbortController(), new AbortController()];
    const running = controllers.map(({ signal }) => proxied.query({ name: 'aborted-pair', sql, signal }));
    await until('the queries to run', async () => (await runningQueries('aborted-pair')) === 2);
    const waiting = proxied.ping();
    for (const controller of controllers) controller.abort(new Error('gone'));
    await Promise.all(running.map((query) => expect(query).rejects.toThrow('gone')));
    await waiting;
  });

  it('a query that is aborted while it waits for a connection ends at once, and does not close the connection', async () => {
    const oneConnection = openClickHouse({ url: stores.clickhouseUrl, logger, timeoutMs: 10_000, maxConnections: 1 });
    const aborting = new AbortController();
    const running = oneConnection.query({ name: 'connection-in-use', sql: 'SELECT sleep(3)' });
    const waiting = oneConnection.query({ name: 'test', sql: 'SELECT 1', signal: aborting.signal });
    await until('the first query to run', async () => (await runningQueries('connection-in-use')) === 1);
    aborting.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    expect(await runningQueries('connection-in-use')).toBe(1);
    await running;
    // The client does not repeat a command.
    await oneConnection.command({ name: 'test', sql: 'SELECT 1' });
    await oneConnection.close();
  });

  it('opens a new connection after all connections broke', async () => {
    await proxied.ping();
    proxy.breakAll();
    await proxied.ping();
  });

  it('repeats a query once if its connection closes, but no other statement', async () => {
    proxy.dropResponseTo('repeated');
    expect(await proxied.query({ name: 'test', sql: "SELECT 'repeated' AS v" })).toEqual([{ v: 'repeated' }]);
    proxy.dropResponseTo('not_again');
    const sql = 'CREATE TABLE not_again (n UInt8) ENGINE = Memory';
    await expect(proxied.command({ name: 'test', sql })).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
  });
});

describe('insertBody', () => {
  let proxy: TcpProxy;
  let proxied: ClickHouse;
  beforeAll(async () => {
    await clickhouse.command({
      name: 'test',
      sql: 'CREATE TABLE letters (n UInt64, s String) ENGINE = MergeTree ORDER BY n',
    });
    const url = new URL(stores.clickhouseUrl);
    proxy = await openTcpProxy(url.hostname, Number(url.port));
    url.host = `127.0.0.1:${proxy.port}`;
    proxied = openClickHouse({ url: url.href, logger, timeoutMs: 2_000 });
  });
  afterAll(async () => {
    await proxied?.close();
    await proxy?.close();
  });

  const makeRows = (from: number, rows: number) =>
    Buffer.from(
      Array.from({ length: rows }, (_, index) => `{"n":${from + index},"s":"${'x'.repeat(1_000)}"}\n`).join(''),
    );
  const insert = (target: ClickHouse, body: Buffer) =>
    target.insertBody({ name: 'test', table: 'letters', columns: ['n', 's'], format: 'JSONEachRow', body });
  const stored = async (from: number) => Number(await one(`SELECT count() AS v FROM letters WHERE n >= ${from}`));

  it('sends Content-Length instead of chunked encoding', async () => {
    const body = makeRows(0, 100);
    await insert(proxied, body);
    const sent = proxy.sent().toString('latin1');
    const start = sent.lastIndexOf('POST /');
    const head = sent.slice(start, sent.indexOf('\r\n\r\n', start)).toLowerCase().split('\r\n');
    expect(head).toContain(`content-length: ${body.length}`);
    expect(head.join('\n')).not.toContain('transfer-encoding');
    expect(await stored(0)).toBe(100);
  });

  it('stores an equal body again', async () => {
    const body = makeRows(1_000, 10);
    for (let time = 0; time < 2; time += 1) await insert(clickhouse, body);
    expect(await stored(1_000)).toBe(20);
  });

  it('a truncated body stores nothing', async () => {
    const body = makeRows(2_000, 5_000);
    proxy.breakAfter(body.length / 2);
    await expect(insert(proxied, body)).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    proxy.breakAfter(Number.POSITIVE_INFINITY);
    await waitUntilNoneRunning('test');
    expect(await stored(2_000)).toBe(0);
    await insert(proxied, body);
    expect(await stored(2_000)).toBe(5_000);
  });

  it('gives up a server that stops responding after the timeout', async () => {
    proxy.freeze(true);
    const started = performance.now();
    await expect(proxied.ping(200)).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    expect(performance.now() - started).toBeLessThan(4_000);
    proxy.freeze(false);
    await proxied.ping();
  });
});

describe('two servers of which one does not respond', () => {
  let proxy: TcpProxy;
  let stalledUrl: string;
  beforeAll(async () => {
    const url = new URL(stores.clickhouseUrl);
    proxy = await openTcpProxy(url.hostname, Number(url.port));
    proxy.freeze(true);
    url.host = `127.0.0.1:${proxy.port}`;
    stalledUrl = url.href;
  });
  afterAll(() => proxy?.close());

  it('a query ends at its timeout, also if there is another server', async () => {
    const stalled = openClickHouse({ url: `${stalledUrl},${stalledUrl}`, logger, timeoutMs: 200 });
    const started = performance.now();
    await expect(stalled.ping()).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    expect(performance.now() - started).toBeLessThan(4_000);
    await stalled.close();
  });

  it('a query goes to the other one if the connection is refused', async () => {
    const pair = openClickHouse({ url: `http://u:p@127.0.0.1:1/d,${stores.clickhouseUrl}`, logger, timeoutMs: 5_000 });
    for (let query = 0; query < 3; query++) await pair.ping();
    await pair.close();
  });

  it('later queries go to the other one', async () => {
    const pair = openClickHouse({ url: `${stalledUrl},${stores.clickhouseUrl}`, logger, timeoutMs: 5_000 });
    await expect(pair.ping(200)).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    for (let query = 0; query < 3; query++) await pair.ping();
    await pair.close();
  });
});

const runningQueries = async (name: string) =>
  Number(
    await one("SELECT count() AS v FROM system.processes WHERE Settings['log_comment'] = {name:String}", { name }),
  );

/** Waits until no query with this name runs. The check itself does not count if it has the same name. */
const waitUntilNoneRunning = async (name: string) => {
  const own = name === 'test' ? 1 : 0;
  await until(`no ${name} to run`, async () => (await runningQueries(name)) === own);
};
