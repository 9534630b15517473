import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { beforeEach, describe, expect, it } from 'vitest';
import { openClickHouse } from '../../../infra/clickhouse/client.ts';
import { freshStores } from '../../engines/stores.ts';
import { folderForSuite } from '../../folders.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';
import { openTcpProxy } from '../tcp-proxy.ts';
import { until } from '../until.ts';

const clickhouse = createProxyTo(() => stores.clickhouse);
const folder = folderForSuite();
let path: string;
const stores = forSuite(() => freshStores({ migrated: false }));
beforeEach(() => {
  path = join(folder, 'result.parquet');
});

const ask = (sql: string, more: object = {}, from = clickhouse) =>
  from.queryToFile({ name: 'to-file', sql, format: 'Parquet', path, ...more });

describe('queryToFile', () => {
  it('writes the whole result and replaces an existing file', async () => {
    await writeFile(path, 'x'.repeat(10_000_000));
    const { bytes } = await ask(
      "SELECT number AS n, concat('a\\0', toString(number)) AS s FROM numbers(100000) ORDER BY n",
    );
    expect((await stat(path)).size).toBe(bytes);
    const file = new Uint8Array(await readFile(path)).buffer as ArrayBuffer;
    const rows = (await parquetReadObjects({ file, compressors })) as { n: bigint; s: string }[];
    expect(rows).toHaveLength(100_000);
    expect(rows[99_999]).toEqual({ n: 99_999n, s: 'a\u000099999' });
  });

  it('writes a result without rows', async () => {
    await ask("SELECT 1 AS n, 'x' AS s WHERE 0");
    const file = new Uint8Array(await readFile(path)).buffer as ArrayBuffer;
    expect(await parquetReadObjects({ file, compressors })).toEqual([]);
  });

  it('uses memory independent of the size of the result', async () => {
    globalThis.gc?.();
    const before = process.memoryUsage().rss;
    let maxRss = 0;
    const timer = setInterval(() => {
      maxRss = Math.max(maxRss, process.memoryUsage().rss);
    }, 5);
    const { bytes } = await ask('SELECT randomString(1000) AS s FROM numbers(250000)');
    clearInterval(timer);
    expect(bytes).toBeGreaterThan(240_000_000);
    expect(maxRss - before).toBeLessThan(120_000_000);
  });
});

describe('leaves no file after a failure', () => {
  const noFile = async () => expect(await readdir(folder)).toEqual([]);
  beforeEach(async () => {
    await writeFile(path, 'an older one');
  });

  it.each([
    ['before the first row', 'SELECT nothing_such'],
    ['after many rows', 'SELECT throwIf(number = 3000000), number FROM numbers(4000000)'],
  ])('of the query, %s', async (_, sql) => {
    await expect(ask(sql, { settings: { max_threads: 1 } })).rejects.toMatchObject({ code: 'CLICKHOUSE_QUERY_FAILED' });
    await noFile();
  });

  it('by timeout', async () => {
    const sql = 'SELECT number, sleepEachRow(0.05), randomString(100000) FROM numbers(400) SETTINGS max_block_size = 1';
    await expect(ask(sql, { timeoutMs: 500 })).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    await noFile();
  });

  it('by abort in the middle of the result, which also ends the query', async () => {
    const controller = new AbortController();
    const sql = `SELECT number, sleepEachRow(0.01), randomString(100000) AS s FROM numbers(10000)
      SETTINGS max_block_size = 1, output_format_parquet_row_group_size = 1`;
    const reason = new Error('no longer wanted');
    const running = expect(ask(sql, { signal: controller.signal, name: 'aborted-file' })).rejects.toBe(reason);
    await until('a part of the file to be written', async () => (await stat(path)).size > 1_000_000);
    controller.abort(reason);
    await running;
    await noFile();
    await until('the query to end', async () => {
      const [row] = await clickhouse.query<{ c: number }>({
        name: 'test',
        sql: "SELECT count() AS c FROM system.processes WHERE Settings['log_comment'] = 'aborted-file'",
      });
      return row?.c === 0;
    });
  });

  it('of the connection', async () => {
    const url = new URL(stores.clickhouseUrl);
    const proxy = await openTcpProxy(url.hostname, Number(url.port));
    url.host = `127.0.0.1:${proxy.port}`;
    const proxied = openClickHouse({ url: url.href, logger, timeoutMs: 30_000 });
    const sql = `SELECT number, sleepEachRow(0.01), randomString(100000) AS s FROM numbers(10000)
      SETTINGS max_block_size = 1, output_format_parquet_row_group_size = 1`;
    const running = expect(ask(sql, {}, proxied)).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    await until('a part of the file to be written', async () => (await stat(path)).size > 1_000_000);
    proxy.breakAll();
    await running;
    await noFile();
    await proxied.close();
    await proxy.close();
  });

  it('of a server that truncates a result without an error', async () => {
    const server = createServer((_, answer) => answer.end('PAR1 and then nothing more of it'));
    const port = await listenOnLoopback(server);
    const other = openClickHouse({ url: `http://u:p@127.0.0.1:${port}/d`, logger, timeoutMs: 5_000 });
    await expect(ask('SELECT 1', {}, other)).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    await noFile();
    await other.close();
    await new Promise((resolve) => server.close(resolve));
  });

  it('of the disk, without the path of the folder', async () => {
    await rm(path);
    await expect(ask('SELECT 1 AS n', { path: join(folder, 'nowhere', 'x.parquet') })).rejects.toMatchObject({
      code: 'WORK_FILE_UNUSABLE',
      message: 'The work file x.parquet of an export cannot be written or read (ENOENT).',
      cause: { path: join(folder, 'nowhere', 'x.parquet') },
    });
    await noFile();
  });
});
