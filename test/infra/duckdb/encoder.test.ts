import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { EncodeRequest } from '../../../infra/duckdb/encode-sql.ts';
import { type Encoder, openEncoder } from '../../../infra/duckdb/encoder.ts';
import { readProcessIdentity } from '../../../infra/embedded/process-identity.ts';
import { childProcessOptions } from '../../engines/child-of-suite.ts';
import { until } from '../until.ts';

const megabyte = 1024 * 1024;
let root: string;
let folder: string;
let encoder: Encoder;
let count = 0;
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "runlake-encoder's "));
});
afterAll(() => rm(root, { recursive: true, force: true }));
beforeEach(async () => {
  folder = join(root, `folder-${++count}`);
  await mkdir(folder);
  encoder = openEncoder({ memoryLimitBytes: 256 * megabyte });
});
afterEach(() => encoder.close());

async function duckdb(sql: string): Promise<Record<string, unknown>[]> {
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  try {
    return (await connection.runAndReadAll(sql)).getRowObjectsJson();
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

const quoted = (path: string) => `'${path.replaceAll("'", "''")}'`;
const at = (file: string) => quoted(join(folder, file));
const makeSource = (select: string, groupRows = 4_096) =>
  duckdb(`COPY (${select}) TO ${at('source.parquet')} (FORMAT parquet, ROW_GROUP_SIZE ${groupRows})`);
const rowsOf = (file = 'target.parquet') => duckdb(`SELECT * FROM ${at(file)}`);
const request = (more: Partial<EncodeRequest> = {}): EncodeRequest => ({
  folder,
  source: 'source.parquet',
  target: 'target.parquet',
  columns: [{ name: 'n', form: 'integer', from: 'n' }],
  compression: 'zstandard',
  rowGroupRows: 120_000,
  ...more,
});
/** Returns a request that takes DuckDB several seconds. */
const slowSource = () =>
  makeSource('SELECT range AS n, md5(range::VARCHAR) || md5((range + 1)::VARCHAR) AS s FROM range(400000)');
const slow = () =>
  request({ columns: [...'abcdef'].map((name) => ({ name, form: 'text', from: 's' })), compression: 'gzip' });

const begun = () =>
  until('a part of the file to be written', async () => {
    const { size } = await stat(join(folder, 'target.parquet')).catch(() => ({ size: 0 }));
    return size > 0;
  });

describe('encoding', () => {
  it('encodes each form with its type, as the footer shows', async () => {
    await makeSource(`SELECT 5::INT n, 'text' t, true b, 1700000000000001 m, '"a\\u00e9"' j, '["x", 1, null]' l
      UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL`);
    const facts = await encoder.encode(
      request({
        columns: [
          { name: 'integer', form: 'integer', from: 'n' },
          { name: 'Text "quoted"', form: 'text', from: 't' },
          { name: 'boolean', form: 'boolean', from: 'b' },
          { name: 'time', form: 'time', from: 'm' },
          { name: 'zoned', form: 'zoned-time', from: 'm' },
          { name: 'json', form: 'json-text', from: 'j' },
          { name: 'list', form: 'json-list', from: 'l' },
          { name: 'nothing', form: 'text' },
        ],
      }),
    );
    expect(facts).toMatchObject({
      rows: 2,
      compressions: ['ZSTD'],
      groups: [{ rows: 2 }],
      nulls: { nothing: 2, time: 1 },
    });
    expect(facts.columns).toEqual([
      { name: 'integer', type: 'BIGINT' },
      { name: 'Text "quoted"', type: 'VARCHAR' },
      { name: 'boolean', type: 'BOOLEAN' },
      { name: 'time', type: 'TIMESTAMP' },
      { name: 'zoned', type: 'TIMESTAMP WITH TIME ZONE' },
      { name: 'json', type: 'VARCHAR' },
      { name: 'list', type: 'VARCHAR[]' },
      { name: 'nothing', type: 'VARCHAR' },
    ]);
    expect(await encoder.inspect({ folder, source: 'target.parquet' })).toEqual(facts);
    const [row, empty] = await rowsOf();
    expect(row).toMatchObject({
      integer: '5',
      boolean: true,
      time: '2023-11-14 22:13:20.000001',
      json: 'aé',
      nothing: null,
    });
    expect(row).toMatchObject({ zoned: '2023-11-14 22:13:20.000001+00', list: ['x', '1', null] });
    expect(new Set(Object.values(empty as object))).toEqual(new Set([null]));
  });

  it.each([
    ['none', 'UNCOMPRESSED'],
    ['gzip', 'GZIP'],
    ['snappy', 'SNAPPY'],
    ['zstandard', 'ZSTD'],
  ] as const)('compression %s', async (compression, footerCodec) => {
    await makeSource("SELECT range n, 'some text ' || range s FROM range(5000)");
    const columns = [{ name: 's', form: 'text', from: 's' }] as const;
    expect((await encoder.encode(request({ compression, columns }))).compressions).toEqual([footerCodec]);
    expect((await rowsOf())[4_999]).toEqual({ s: 'some text 4999' });
  });

  it.each([
    [100_000, 120_000, 4_096, 100_000],
    [100_000, 30_000, 4_096, 34_096],
  ])(
    'of %i rows, groups of %i out of groups of %i: at most %i in one',
    async (rows, groupRows, sourceGroupRows, most) => {
      await makeSource(`SELECT range n FROM range(${rows})`, sourceGroupRows);
      const { groups } = await encoder.encode(request({ rowGroupRows: groupRows }));
      expect(groups.reduce((sum, group) => sum + group.rows, 0)).toBe(rows);
      expect(Math.max(...groups.map((group) => group.rows))).toBeLessThanOrEqual(most);
      const [order] = await duckdb(
        `SELECT bool_and(n = file_row_number) AS kept FROM read_parquet(${at('target.parquet')}, file_row_number = true)`,
      );
      expect(order).toEqual({ kept: true });
    },
  );

  it('values of the derived file replace those of the source, row by row', async () => {
    await makeSource("SELECT range n, 'own ' || range s FROM range(3000)");
    const lines = Array.from({ length: 3_000 }, (_, n) => (n % 3 === 0 ? `1,"side ""${n}"", {""a"":1}\u2028é"` : '1,'));
    await writeFile(join(folder, 'beside.csv'), lines.map((line) => `${line}\n`).join(''));
    await encoder.encode(
      request({
        derived: {
          files: [{ name: 'beside.csv', rows: 0, bytes: 0 }],
          columns: ['there', 's'],
          maxLineBytes: 100,
          rowsAtOnce: 3_000,
        },
        columns: [
          { name: 's', form: 'text', from: 's', derivedColumn: 's' },
          { name: 'alone', form: 'text', derivedColumn: 's' },
        ],
      }),
    );
    const rows = await rowsOf();
    expect(rows).toHaveLength(3_000);
    for (const [n, row] of rows.entries()) {
      const side = n % 3 === 0 ? `side "${n}", {"a":1}\u2028é` : null;
      expect(row).toEqual({ s: side ?? `own ${n}`, alone: side });
    }
  });

  it('writes columns as CSV in row order', async () => {
    await makeSource("SELECT range n, CASE WHEN range % 2 = 0 THEN 'x' || range END s FROM range(5)");
    await encoder.list({ folder, source: 'source.parquet', target: 'rows.csv', columns: ['n', 's'] });
    expect(await duckdb(`SELECT content FROM read_text(${at('rows.csv')})`)).toEqual([
      { content: '0,x0\n1,\n2,x2\n3,\n4,x4\n' },
    ]);
  });

  it('one process executes requests sequentially', async () => {
    await makeSource('SELECT range n FROM range(1000)');
    const facts = await Promise.all(
      [1, 2, 3, 4].map((place) => encoder.encode(request({ target: `target-${place}.parquet` }))),
    );
    expect(facts.map(({ rows }) => rows)).toEqual([1_000, 1_000, 1_000, 1_000]);
    const { pid } = encoder;
    await encoder.inspect({ folder, source: 'target-1.parquet' });
    expect(encoder.pid).toBe(pid);
  });

  it('cannot access files outside its folder', async () => {
    await makeSource('SELECT 1 n');
    const other = join(root, 'other');
    await mkdir(other, { recursive: true });
    await expect(encoder.encode(request({ target: '../other/x.parquet' }))).rejects.toMatchObject({
      code: 'PARQUET_ENCODER_FAILED',
    });
    expect(await readdir(other)).toEqual([]);
    await expect(encoder.inspect({ folder, source: '../../../etc/passwd' })).rejects.toMatchObject({
      code: 'PARQUET_ENCODER_FAILED',
    });
  });
});

describe('failures', () => {
  const left = async () => (await readdir(folder)).sort();

  it('a source that is not Parquet fails without a target or DuckDB text, and the next request succeeds', async () => {
    await writeFile(join(folder, 'source.parquet'), 'secret content');
    const error = await encoder.encode(request()).catch((raw: unknown) => raw);
    expect(error).toMatchObject({
      code: 'PARQUET_ENCODER_FAILED',
      message: expect.stringContaining('Invalid Input Error'),
    });
    expect(String(error)).not.toContain(folder);
    expect(await left()).toEqual(['source.parquet']);
    await makeSource('SELECT 1 n');
    expect((await encoder.encode(request())).rows).toBe(1);
  });

  it('an abort during a request ends the process and leaves no files', async () => {
    await slowSource();
    const controller = new AbortController();
    const reason = new Error('cancelled');
    const running = expect(encoder.encode(slow(), controller.signal)).rejects.toBe(reason);
    await begun();
    const pid = encoder.pid as number;
    const started = performance.now();
    controller.abort(reason);
    await running;
    expect(performance.now() - started).toBeLessThan(2_000);
    expect(readProcessIdentity(pid)).toBeUndefined();
    expect(await left()).toEqual(['source.parquet']);
    expect((await encoder.encode(request())).rows).toBe(400_000);
  });

  it('an abort of a queued request ends its wait at once and does not affect other requests', async () => {
    await slowSource();
    const first = encoder.encode(slow());
    const controller = new AbortController();
    const reason = new Error('cancelled');
    const second = encoder.encode(request({ target: 'second.parquet' }), controller.signal);
    controller.abort(reason);
    await expect(second).rejects.toBe(reason);
    expect((await first).rows).toBe(400_000);
    expect(await left()).toEqual(['source.parquet', 'target.parquet']);
  });

  it('does not start a request whose signal is already aborted', async () => {
    const reason = new Error('too late');
    await expect(encoder.encode(request(), AbortSignal.abort(reason))).rejects.toBe(reason);
    expect(encoder.pid).toBeUndefined();
  });

  it('a killed process fails only its current request', async () => {
    await slowSource();
    const running = expect(encoder.encode(slow())).rejects.toMatchObject({
      code: 'PARQUET_ENCODER_FAILED',
      message: expect.stringContaining('SIGKILL'),
    });
    await begun();
    process.kill(encoder.pid as number, 'SIGKILL');
    await running;
    expect(await left()).toEqual(['source.parquet']);
    expect((await encoder.encode(request())).rows).toBe(400_000);
  });

  it('close fails current and later requests', async () => {
    await slowSource();
    const running = expect(encoder.encode(slow())).rejects.toMatchObject({ code: 'PARQUET_ENCODER_FAILED' });
    await begun();
    const pid = encoder.pid as number;
    await encoder.close();
    await running;
    expect(readProcessIdentity(pid)).toBeUndefined();
    await expect(encoder.encode(request())).rejects.toMatchObject({ code: 'PARQUET_ENCODER_FAILED' });
    await encoder.close();
    expect(await left()).toEqual(['source.parquet']);
  });

  it('the process exits when its parent is killed, also during a request', async () => {
    await slowSource();
    const parent = fork(join(import.meta.dirname, 'encoder-parent.fixture.ts'), [JSON.stringify(slow())], {
      execArgv: [...childProcessOptions],
    });
    const [pid] = (await once(parent, 'message')) as [number];
    await begun();
    expect(readProcessIdentity(pid)).toBeDefined();
    parent.kill('SIGKILL');
    await until('the encoder to exit', async () => readProcessIdentity(pid) === undefined);
  });

  it('reports an exceeded memory limit', async () => {
    const small = openEncoder({ memoryLimitBytes: 64 * megabyte });
    await makeSource('SELECT range n, repeat(md5(range::VARCHAR), 1000000) s FROM range(8)');
    const columns = [{ name: 's', form: 'text', from: 's' }] as const;
    await expect(small.encode(request({ columns }))).rejects.toMatchObject({
      code: 'PARQUET_ENCODER_FAILED',
      message: expect.stringContaining('Out of Memory Error'),
    });
    expect(await left()).toEqual(['source.parquet']);
    await small.close();
  });
});
