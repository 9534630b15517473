// # 7. Bulk export
//
// An export writes the runs of a tracing project as Parquet files into a bucket of your own, and a manifest behind them. From
// there DuckDB, ClickHouse, pandas and whatever else reads Parquet take them, without asking Runlake again.
//
// Any store that speaks the S3 API will do. A destination says where and, sealed once it is stored, with which credentials:
//
// curl -H 'x-api-key: <key>' -H 'content-type: application/json' http://127.0.0.1:1984/api/v1/bulk-exports/destinations
// -d '{
//     "display_name": "lake", "config": {"bucket_name": "traces", "prefix": "runlake", "region": "eu-central-1"},
//     "credentials": {"access_key_id": "...", "secret_access_key": "..."}}'
//
// Without `credentials` those that the S3 client finds are used: variables, profile, role of the machine. They are
// those of the operator, so RUNLAKE_ALLOW_DEFAULT_CREDENTIALS=false forbids it where others create destinations.
//
// It is made once a test object could be written there. The key needs `s3:PutObject` below the prefix. With
// `s3:AbortMultipartUpload` and `s3:ListBucketMultipartUploads`, uploads that a crash or a cancellation cut off are
// taken back; without them, let a lifecycle rule of the bucket end unfinished uploads.
//
// Addresses on private networks are refused unless the operator sets RUNLAKE_ALLOW_PRIVATE_ENDPOINTS. This chapter
// writes to a folder instead, below the one that RUNLAKE_LOCAL_EXPORT_ROOT names.

import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { builtCommand } from '../../test/built-program.ts';
import { pythonEnvironment } from '../../test/e2e/python/environment.ts';
import { type RunlakeProcess, startRunlake } from '../../test/runlake-process.ts';

const root = mkdtempSync(join(tmpdir(), 'runlake-guide-'));
const environment = { RUNLAKE_LOCAL_EXPORT_ROOT: root };
let runlake: RunlakeProcess;
let projectId: string;
let destinationId: string;
let exportId: string;

const ask = async (path: string, body?: object, method = body === undefined ? 'GET' : 'POST') => {
  const answer = await fetch(`${runlake.url}/api/v1${path}`, {
    method,
    headers: { 'x-api-key': runlake.apiKey, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  // biome-ignore lint/suspicious/noExplicitAny: each answer has a form of its own, which /docs describes.
  return { status: answer.status, body: (await answer.json()) as any };
};
const command = (...words: string[]) =>
  builtCommand(['export', ...words], { RUNLAKE_DATA_DIR: runlake.dataDir, ...environment });

beforeAll(async () => {
  runlake = await startRunlake({ environment });
  // The first runs: two questions on one day, one on the next.
  const runs = [
    { start_time: '2026-03-01T08:00:00Z', end_time: '2026-03-01T08:00:02Z', total_tokens: 120 },
    { start_time: '2026-03-01T23:59:59.999999Z', end_time: '2026-03-02T00:00:01Z', total_tokens: 80 },
    { start_time: '2026-03-02T00:00:00Z', end_time: '2026-03-02T00:00:03Z', total_tokens: 7 },
  ].map(({ total_tokens: total, ...times }) => ({
    ...times,
    id: randomUUID(),
    name: 'ask model',
    run_type: 'llm',
    session_name: 'shop',
    inputs: { question: 'Where is my parcel?' },
    outputs: { answer: 'On its way.', usage_metadata: { input_tokens: total, output_tokens: 0, total_tokens: total } },
    tags: ['prod'],
  }));
  for (const run of runs) expect((await ask('/runs', run)).status).toBe(202);
  projectId = (await ask('/sessions?name=shop')).body[0].id;
});
afterAll(async () => {
  await runlake?.remove();
  rmSync(root, { recursive: true, force: true });
});

describe('an export', () => {
  it('needs a destination', async () => {
    const place = { destination_type: 'local', display_name: 'lake', config: { prefix: 'traces' } };
    const { status, body } = await ask('/bulk-exports/destinations', place);
    expect(status).toBe(200);
    destinationId = body.id;
    // Credentials never come back, only their names.
    expect(body).toMatchObject({ display_name: 'lake', credentials_keys: [] });
  });

  it('takes the runs of a range of start times; the end is exclusive', async () => {
    const { status, body } = await ask('/bulk-exports', {
      bulk_export_destination_id: destinationId,
      session_id: projectId,
      start_time: '2026-03-01T00:00:00Z',
      end_time: '2026-03-04T00:00:00Z',
      format_version: 'v2_beta',
    });
    expect(status).toBe(200);
    exportId = body.id;
    // What was accepted before the request belongs to it. Runs that arrive later are counted as `late_runs` and left out.
    expect(body.members_until).toMatch(/^20/);
  });

  it('tells how it goes, and is COMPLETED when the manifest is written', async () => {
    await expect
      .poll(async () => (await ask(`/bulk-exports/${exportId}`)).body.status, { timeout: 60_000 })
      .toBe('COMPLETED');
    const { progress } = (await ask(`/bulk-exports/${exportId}`)).body;
    // One run of an export for each UTC day. The third day has no runs, and no file.
    expect(progress).toMatchObject({ runs_total: 3, runs_completed: 3, rows_written: 3, files: 2, late_runs: 0 });
  });

  // The same in the terminal, with a bar: runlake export create --project shop --destination lake
  //   --start 2026-03-01 --end 2026-03-04 --watch
  it('can be made and watched in the terminal; the exit code is 0 only if it is COMPLETED', async () => {
    const range = ['--start', '2026-03-01', '--end', '2026-03-02'];
    const where = ['--project', 'shop', '--destination', 'lake', '--fields', 'id,name,total_tokens'];
    const { code, output, errors } = await command('create', ...where, ...range, '--watch');
    expect(code, errors).toBe(0);
    expect(output).toMatch(/^COMPLETED in .*: 2 rows in 1 file,/m);
    expect((await command('list')).output.match(/COMPLETED/g)).toHaveLength(2);
  });

  // With `interval_hours` instead of an end it is a schedule: each interval becomes an export of its own, ten minutes
  // after it ended, none skipped and none twice. Cancelling the schedule leaves those alone.
  it('repeats itself where it has an interval', async () => {
    const range = ['--start', '2026-03-01', '--interval-hours', '168'];
    const { output } = await command('create', '--project', 'shop', '--destination', 'lake', ...range);
    const { body } = await ask(`/bulk-exports/${output.trim()}`, { status: 'Cancelled' }, 'PATCH');
    expect(body).toMatchObject({ interval_hours: 168, status: 'CANCELLED' });
  });
});

const below = (folder: string) => readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort();
/** Of the first export. Its name holds ids, so it is looked up here. */
const folderOf = () =>
  join(root, dirname(below(root).find((path) => path.includes(exportId) && path.endsWith('_manifest.json')) ?? ''));
const filesOf = () => below(folderOf()).filter((path) => path.endsWith('.parquet'));

// docs/reference/export-columns.md lists the columns, with their types in `v1` and `v2_beta`. v1 has `runs/` where
// v2_beta has `resource=runs/`, times without a zone, and lists as JSON text.
describe('the files', () => {
  it('lie in Hive folders, a day a folder', () => {
    expect(filesOf().map(dirname)).toEqual([
      'resource=runs/year=2026/month=03/day=01',
      'resource=runs/year=2026/month=03/day=02',
    ]);
  });

  it('are whole where there is a manifest, which names each with its rows and its checksum', () => {
    const manifest = JSON.parse(readFileSync(join(folderOf(), '_manifest.json'), 'utf8'));
    expect(manifest).toMatchObject({
      manifest_version: 1,
      bulk_export_id: exportId,
      rows: 3,
      format_version: 'v2_beta',
    });
    expect(manifest.files).toHaveLength(2);
    expect(manifest.files[0]).toMatchObject({ part: 1, rows: 2, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });
  });
});

describe('DuckDB', () => {
  const query = async (sql: string) => {
    const instance = await DuckDBInstance.create(':memory:');
    const connection = await instance.connect();
    try {
      await connection.run(`SET file_search_path = '${folderOf()}'`);
      return (await connection.runAndReadAll(sql)).getRowObjectsJson();
    } finally {
      connection.closeSync();
      instance.closeSync();
    }
  };

  it('reads them in place, folders as columns', async () => {
    const rows = await query(`
      SELECT month, day, count(*) AS runs, sum(total_tokens) AS tokens, any_value(tags) AS tags
      FROM read_parquet('**/*.parquet', hive_partitioning = true, hive_types_autocast = false)
      GROUP BY ALL ORDER BY day`);
    expect(rows).toEqual([
      { month: '03', day: '01', runs: '2', tokens: '200', tags: ['prod'] },
      { month: '03', day: '02', runs: '1', tokens: '7', tags: ['prod'] },
    ]);
  });

  it('opens only the days that are asked for', async () => {
    const [plan] = await query(`
      EXPLAIN ANALYZE SELECT inputs->>'question' FROM read_parquet('**/*.parquet', hive_partitioning = true) WHERE day = 2`);
    expect(JSON.stringify(plan)).toMatch(/Files Read: 1\b|Scanning Files: 1\/2/);
  });
});

// In ClickHouse of your own: SELECT ... FROM s3('https://bucket.s3.amazonaws.com/.../**/*.parquet'), or file() for
// folders that the server may read. Over HTTP a file is the body of an INSERT.
describe('ClickHouse', () => {
  const clickhouse = async (query: string, body: Buffer | string = '') => {
    const { origin, username, password, pathname } = new URL(runlake.stores().clickhouseUrl);
    const parameters = new URLSearchParams({ query, database: pathname.slice(1) || 'default' });
    const answer = await fetch(`${origin}/?${parameters}`, {
      method: 'POST',
      headers: { authorization: `Basic ${btoa(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`)}` },
      body: typeof body === 'string' ? body : new Uint8Array(body),
    });
    const text = await answer.text();
    expect(answer.status, text).toBe(200);
    return text;
  };

  it('takes a file as the body of an INSERT; columns are found by name', async () => {
    const columns = `id UUID, name String, start_time DateTime64(6, 'UTC'), total_tokens UInt64, tags Array(String)`;
    await clickhouse(`CREATE TABLE exported_runs (${columns}) ENGINE = MergeTree ORDER BY start_time`);
    for (const file of filesOf()) {
      await clickhouse('INSERT INTO exported_runs FORMAT Parquet', readFileSync(join(folderOf(), file)));
    }
    const rows = await clickhouse(`
      SELECT toDate(start_time) AS day, count(), sum(total_tokens), any(tags) FROM exported_runs
      GROUP BY day ORDER BY day FORMAT TSV`);
    expect(rows).toBe("2026-03-01\t2\t200\t['prod']\n2026-03-02\t1\t7\t['prod']\n");
    await clickhouse('DROP TABLE exported_runs');
  });
});

const python = pythonEnvironment('parquet');
if ('missing' in python) console.warn(`skipped: ${python.missing}`);

describe.skipIf('missing' in python)('pandas', () => {
  it('reads the folder, or some days of it', async () => {
    const script = `
import sys, pandas
runs = pandas.read_parquet(sys.argv[1])
print(runs.groupby('day', observed=True)['total_tokens'].agg(['count', 'sum']).to_csv(), end='')
some = pandas.read_parquet(sys.argv[1], columns=['start_time'], filters=[('day', '==', 2)])
print(some['start_time'].iloc[0].isoformat())
`;
    if ('missing' in python) return;
    const { stdout } = await promisify(execFile)(python.python, ['-c', script, folderOf()], {
      env: { PATH: process.env.PATH },
    });
    expect(stdout).toBe('day,count,sum\n1,2,200\n2,1,7\n2026-03-02T00:00:00+00:00\n');
  });
});
