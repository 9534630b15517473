/** Runs a bulk export through the API, from the first request to the files. */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test, vi } from 'vitest';
import { askRunlake } from '../ask-runlake.ts';
import { folderForSuite } from '../folders.ts';
import { forSuite } from '../for-suite.ts';
import { until } from '../infra/until.ts';
import { rowsOf } from '../pipelines/exports/exporting.ts';
import { startRunlake } from '../runlake-process.ts';

vi.setConfig({ testTimeout: 180_000 });

const root = folderForSuite();
const runlake = forSuite(() => startRunlake({ environment: { RUNLAKE_LOCAL_EXPORT_ROOT: root } }));

const ask = <T = { id: string }>(method: string, path: string, body?: object) =>
  askRunlake<T>(runlake, `/api/v1${path}`, { method, body });

const beginMs = Math.floor(Date.now() / 86_400_000 - 1) * 86_400_000;
const start_time = new Date(beginMs).toISOString();
const end_time = new Date(beginMs + 86_400_000).toISOString();

let session: string;
let destination: string;

interface Export {
  readonly status: string;
  readonly progress: { readonly rows_written: number; readonly files: number; readonly runs_completed: number };
}

/** Creates an export of the day, and returns it when it has ended, with its files. */
async function exportDay(more: object = {}) {
  const request = { bulk_export_destination_id: destination, session_id: session, start_time, end_time, ...more };
  const { id } = await ask('POST', '/bulk-exports', request);
  let made = await ask<Export>('GET', `/bulk-exports/${id}`);
  await until(
    'the end of the export',
    async () => {
      made = await ask<Export>('GET', `/bulk-exports/${id}`);
      return !['CREATED', 'RUNNING'].includes(made.status);
    },
    60_000,
  );
  const runs = await ask<{ metadata: { result: { exported_files: string[] } } }[]>('GET', `/bulk-exports/${id}/runs`);
  return {
    made,
    files: runs.flatMap(({ metadata }) => metadata.result.exported_files).map((file) => join(root, file)),
  };
}

beforeAll(async () => {
  ({ id: session } = await ask('POST', '/sessions', { name: 'small' }));
  const post = Array.from({ length: 1_000 }, (_, index) => {
    const id = randomUUID();
    const at = new Date(beginMs + index * 1_000).toISOString();
    return {
      id,
      trace_id: id,
      dotted_order: `${at.replace(/[-:.]/g, '').replace('Z', '000Z')}${id}`,
      session_id: session,
      name: `run ${index}`,
      run_type: 'chain',
      start_time: at,
      inputs: { index },
    };
  });
  await ask('POST', '/runs/batch', { post });
  ({ id: destination } = await ask('POST', '/bulk-exports/destinations', {
    destination_type: 'local',
    display_name: 'here',
    config: { prefix: 'exports' },
  }));
});

test('writes 1,000 runs of a day to the bucket within three seconds of the request', async () => {
  const tookMs: number[] = [];
  for (let time = 0; time < 3; time++) {
    const beganMs = performance.now();
    const { made, files } = await exportDay();
    tookMs.push(performance.now() - beganMs);
    expect(made).toMatchObject({ status: 'COMPLETED', progress: { rows_written: 1_000, files: 1, runs_completed: 1 } });
    expect((await readFile(files[0] ?? '')).subarray(0, 4).toString()).toBe('PAR1');
  }
  // Fastest of three runs, because other processes may delay a single one.
  expect(Math.min(...tookMs)).toBeLessThan(3_000);
});

test('writes only the runs that match the filter', async () => {
  const { made, files } = await exportDay({ filter: 'and(eq(is_root, true), like(name, "run 77%"))' });
  const rows = (await Promise.all(files.map(rowsOf))).flat();
  const names = ['run 77', ...Array.from({ length: 10 }, (_, digit) => `run 77${digit}`)];
  expect(rows.map(({ name }) => name).sort()).toEqual(names);
  expect(made).toMatchObject({ status: 'COMPLETED', progress: { rows_written: names.length } });
  expect(await exportDay({ filter: 'eq(name, "none")' })).toMatchObject({ made: { status: 'COMPLETED' }, files: [] });
});
