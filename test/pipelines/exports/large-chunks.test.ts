import { readdir } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import type { FileMetaData } from 'hyparquet';
import { describe, expect, it } from 'vitest';
import { findChunk, readChunk } from '../../../pipelines/exports/chunk-reader.ts';
import { encodeChunk } from '../../../pipelines/exports/parquet-writer.ts';
import type { ExportScope } from '../../../pipelines/exports/record.ts';
import { forSuite } from '../../for-suite.ts';
import { deriveUuid, insertEvents, runEvent } from '../runs/run-events.ts';
import { everything, exportAllChunks, makePart, metadataOf, openExporting, wholeDay } from './exporting.ts';

const exporting = forSuite(() => openExporting());

const buildScope = (name: string): ExportScope => ({ ...wholeDay, projectId: deriveUuid(name) });
const never = new AbortController().signal;

interface Texts {
  /** SQL over the number of a row. */
  readonly dottedOrder?: string;
  readonly tags?: string;
}

async function fill(
  scope: ExportScope,
  rows: number,
  rowBytes: number,
  fromMicros = 0,
  { dottedOrder = `'x'`, tags = 'NULL' }: Texts = {},
): Promise<void> {
  await exporting.reading.stores.clickhouse.command({
    name: 'test',
    sql: `INSERT INTO run_events (version, location_version, tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id, dotted_order, tags, inputs)
      SELECT 1, 1, {tenant:UUID}, {project:UUID}, fromUnixTimestamp64Micro({from:Int64} + number), id, id, now64(6), toDateTime64(0, 6), id, id, ${dottedOrder}, ${tags},
        concat('"', base64Encode(randomString({bytes:UInt32})), '"')
      FROM (SELECT number, generateUUIDv4(number) AS id FROM numbers({rows:UInt64}))`,
    params: {
      tenant: scope.tenantId,
      project: scope.projectId,
      from: scope.window.fromMicros + fromMicros,
      rows,
      bytes: rowBytes,
    },
  });
}

/**
 * Checks that each row group has the time statistics that readers use to skip it, and that the groups are in order and
 * do not overlap.
 */
function expectSortedGroups({ row_groups }: FileMetaData): void {
  let before = 0;
  for (const { columns } of row_groups) {
    const column = columns.find(({ meta_data }) => meta_data?.path_in_schema.join() === 'start_time');
    const { min_value: min, max_value: max, null_count: nulls } = column?.meta_data?.statistics ?? {};
    expect([min, max, nulls]).toEqual([expect.any(Date), expect.any(Date), 0n]);
    expect(Number(min)).toBeGreaterThanOrEqual(before);
    expect(Number(max)).toBeGreaterThanOrEqual(Number(min));
    before = Number(max);
  }
}

describe('row groups', () => {
  it.each([
    ['many small runs: 120,000 rows', 150_000, 1, [120_000, 124_096], 2],
    ['few large runs: about 32 MB', 1_500, 50_000, [400, 900], 3],
  ] as const)('of %s', async (name, rows, rowBytes, [min, max], groups) => {
    const scope = buildScope(name);
    await fill(scope, rows, rowBytes);
    const format = { ...everything, fields: ['id', 'start_time', 'inputs'] };
    const [part] = await exportAllChunks(exporting, scope, format, { rows: 1e6, bytes: 1e9 });
    expectSortedGroups((await metadataOf(part!.path)).metadata);
    const folder = part!.path.slice(0, part!.path.lastIndexOf('/'));
    const facts = await exporting.encoder.inspect({ folder, source: 'part.parquet' });
    expect(facts.rows).toBe(rows);
    expect(facts.groups).toHaveLength(groups);
    expect(facts.groups[0]?.rows).toBeGreaterThanOrEqual(min);
    for (const group of facts.groups) {
      expect(group.rows).toBeLessThanOrEqual(max);
      expect(group.uncompressedBytes).toBeLessThan(50_000_000);
    }
  });
});

describe('large runs among many small ones', () => {
  it('stay within the memory limit of the encoder', { timeout: 300_000 }, async () => {
    const scope = buildScope('mixed');
    await fill(scope, 20_000, 100, 0);
    await fill(scope, 400, 250_000, 100_000);
    await fill(scope, 3, 20_000_000, 200_000);
    await fill(scope, 20_000, 100, 300_000);
    const format = { ...everything, fields: ['id', 'inputs'] };
    const parts = await exportAllChunks(exporting, scope, format, { rows: 240_000, bytes: 256 * 1024 * 1024 });
    expect(parts.reduce((rows, part) => rows + part.rows, 0)).toBe(40_403);
  });
});

describe('long lists among short ones', () => {
  it.each([
    [
      'parent_run_ids',
      { dottedOrder: `arrayStringConcat(replicate(concat('20260305T000000000000Z', toString(id)), range(900)), '.')` },
    ],
    ['tags', { tags: `concat('["', arrayStringConcat(replicate(toString(id), range(900)), '","'), '"]')` }],
  ])('stay within the memory limit of the encoder: %s', async (field, texts) => {
    const scope = buildScope(`lists ${field}`);
    await fill(scope, 20_000, 1, 0);
    await fill(scope, 3_000, 1, 100_000, texts);
    const format = { ...everything, fields: ['id', field] };
    const parts = await exportAllChunks(exporting, scope, format, { rows: 240_000, bytes: 256 * 1024 * 1024 });
    expect(parts.reduce((rows, part) => rows + part.rows, 0)).toBe(23_000);
  });
});

describe('a deep trace of runs without dotted_order', () => {
  it('stays within the memory limit of the encoder', async () => {
    const [levels, leaves] = [990, 4_000];
    const scope = buildScope('deep');
    const id = (number: string) => `toUUID(concat('00000000-0000-4000-8000-', leftPad(toString(${number}), 12, '0')))`;
    await exporting.reading.stores.clickhouse.command({
      name: 'test',
      sql: `INSERT INTO run_events (version, location_version, tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id, parent_run_id)
        SELECT 1, 1, {tenant:UUID}, {project:UUID}, fromUnixTimestamp64Micro({from:Int64} + number), ${id('0')}, ${id('number')},
          fromUnixTimestamp64Micro({from:Int64}), now64(6), ${id('0')}, ${id('0')},
          if(number = 0, NULL, ${id(`least(number - 1, ${levels - 1})`)})
        FROM numbers(${levels + leaves})`,
      params: { tenant: scope.tenantId, project: scope.projectId, from: scope.window.fromMicros },
    });
    const format = { ...everything, fields: ['id', 'dotted_order', 'parent_run_ids'] };
    const [part, ...others] = await exportAllChunks(exporting, scope, format, {
      rows: 240_000,
      bytes: 256 * 1024 * 1024,
    });
    expect([part?.rows, others]).toEqual([levels + leaves, []]);
    const { groups } = await exporting.encoder.inspect({
      folder: part!.path.slice(0, part!.path.lastIndexOf('/')),
      source: 'part.parquet',
    });
    for (const group of groups) expect(group.uncompressedBytes).toBeLessThan(100_000_000);
  });
});

describe('aborts and concurrent changes', () => {
  it('leaves no file after an abort at any moment, and writes the next file completely', {
    timeout: 300_000,
  }, async () => {
    const { encoder, reading } = exporting;
    const { clickhouse } = reading.stores;
    const scope = buildScope('aborts');
    await fill(scope, 30_000, 500);
    await insertEvents(clickhouse, [
      runEvent({ projectId: scope.projectId, startTimeMicros: scope.window.fromMicros, dottedOrder: undefined }),
    ]);
    const chunk = await findChunk(clickhouse, scope, undefined, { rows: 1e6, bytes: 1e9 });
    const request = { scope, chunk: chunk!, format: everything };
    const deps = { clickhouse, encoder };
    const reason = new Error('cancelled');
    for (let delayMs = 0, isDone = false; !isDone; delayMs = delayMs * 1.5 + 5) {
      const folder = await exporting.folder();
      const controller = new AbortController();
      const making = makePart(deps, { ...request, folder }, controller.signal).catch((error: unknown) => error);
      const first = await Promise.race([making, pause(delayMs, 'time')]);
      controller.abort(reason);
      const end = await making;
      isDone = first !== 'time';
      if (end === reason) expect(await readdir(folder), `after ${delayMs} ms`).toEqual([]);
      else expect(end).toMatchObject({ rows: 30_001 });
    }
  });

  it('leaves out runs that are deleted after their chunk was found; the file has no rows if none is left', async () => {
    const { encoder, reading } = exporting;
    const { clickhouse } = reading.stores;
    const scope = buildScope('deletions');
    const events = [0, 1, 2].map((index) =>
      runEvent({
        projectId: scope.projectId,
        runId: deriveUuid('deleted', index),
        startTimeMicros: scope.window.fromMicros + index,
      }),
    );
    await insertEvents(clickhouse, events);
    const chunk = await findChunk(clickhouse, scope, undefined, { rows: 10, bytes: 1e9 });
    expect(chunk?.rows).toBe(3);
    const request = { scope, chunk: chunk!, format: everything };
    const deletion = (index: number) => ({ ...events[index]!, kind: 'patch' as const, values: {}, deletedAtMicros: 1 });
    await insertEvents(clickhouse, [deletion(2)]);
    let folder = await exporting.folder();
    expect(await makePart({ clickhouse, encoder }, { ...request, folder }, never)).toMatchObject({ rows: 2 });
    await insertEvents(clickhouse, [deletion(0), deletion(1)]);
    folder = await exporting.folder();
    const empty = await makePart({ clickhouse, encoder }, { ...request, folder }, never);
    expect(empty).toMatchObject({ rows: 0 });
    expect(await readdir(folder)).toEqual(['part.parquet']);
  });

  it('refuses and removes a file that differs from the rows that were read', async () => {
    const { encoder, reading } = exporting;
    const { clickhouse } = reading.stores;
    const scope = buildScope('refused');
    await insertEvents(clickhouse, [
      runEvent({ projectId: scope.projectId, startTimeMicros: scope.window.fromMicros }),
    ]);
    const chunk = await findChunk(clickhouse, scope, undefined, { rows: 10, bytes: 1e9 });
    const folder = await exporting.folder();
    const files = await readChunk({ clickhouse, encoder }, { scope, chunk: chunk!, format: everything, folder }, never);
    await expect(
      encodeChunk({ encoder }, { ...files, rows: 2 }, { folder, format: everything }, never),
    ).rejects.toMatchObject({ code: 'EXPORT_FILE_INVALID' });
    expect(await readdir(folder)).toEqual([]);
  });
});
