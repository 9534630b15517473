import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ClickHouse, Query } from '../../../infra/clickhouse/clickhouse.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { getTenantContext, runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { findChunk } from '../../../pipelines/exports/chunk-reader.ts';
import { countMembers } from '../../../pipelines/exports/members.ts';
import { createChunkSources } from '../../../pipelines/exports/parquet-writer.ts';
import { parseRunFilters } from '../../../pipelines/runs/filter/run-filter.ts';
import { exportFields } from '../../../schemas/parquet/run-columns.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { forSuite } from '../../for-suite.ts';
import { deriveUuid, insertEvents, noonMicros, runEvent, tenantId } from '../runs/run-events.ts';
import {
  everything,
  exportAllChunks,
  makePart,
  metadataOf,
  openExporting,
  queryExpectedRows,
  rowsOf,
  wholeDay,
} from './exporting.ts';

const exporting = forSuite(() => openExporting());

interface Feedback {
  readonly runId: string;
  readonly key: string;
  readonly score?: string;
  readonly comment?: string;
  readonly value?: string;
  readonly isDeleted?: boolean;
  readonly expiresAt?: string;
}

async function giveFeedback(list: readonly Feedback[]): Promise<void> {
  const body = list.map(({ runId, key, score, comment, value, isDeleted, expiresAt = '2100-01-01T00:00:00Z' }) =>
    JSON.stringify({
      tenant_id: tenantId,
      run_id: runId,
      id: randomUUID(),
      received_at: '2026-03-06T00:00:00Z',
      key,
      score,
      comment,
      value,
      source_type: 'api',
      user_id: tenantId,
      created_at: '2026-03-06T00:00:00Z',
      modified_at: '2026-03-06T00:00:00Z',
      expires_at: expiresAt,
      deleted_at: isDeleted ? '2026-03-06T01:00:00Z' : undefined,
    }),
  );
  await exporting.reading.stores.clickhouse.insertBody({
    name: 'test',
    table: 'feedback',
    columns: [
      'tenant_id',
      'run_id',
      'id',
      'received_at',
      'key',
      'score',
      'comment',
      'value',
      'source_type',
      'user_id',
      'created_at',
      'modified_at',
      'expires_at',
      'deleted_at',
    ],
    format: 'JSONEachRow',
    body: Buffer.from(body.join('\n')),
  });
}

describe('derived columns', () => {
  const runs = 2_300;
  const runId = (index: number) => deriveUuid('run', index);
  /**
   * Returns whether a run is unplaced: every fifth run is a child of the previous one and was sent without
   * dotted_order.
   */
  const lacksDottedOrder = (index: number) => index % 5 === 4;
  beforeAll(async () => {
    const events = Array.from({ length: runs }, (_, index) => {
      const trace = runId(index - (index % 5));
      return runEvent({
        runId: runId(index),
        traceId: trace,
        traceTimeMicros: noonMicros + (index - (index % 5)) * 10,
        startTimeMicros: noonMicros + index * 10,
        values: index % 5 === 0 ? {} : { parentRunId: lacksDottedOrder(index) ? runId(index - 1) : trace },
        ...(lacksDottedOrder(index) && { dottedOrder: undefined }),
      });
    });
    await insertEvents(exporting.reading.stores.clickhouse, events);
  });

  it.each(['v1', 'v2_beta'] as const)('derives locations alone while there is no feedback: %s', async (version) => {
    const parts = await exportAllChunks(exporting, wholeDay, { ...everything, version }, { rows: 1_500, bytes: 1e9 });
    expect(parts.map(({ rows }) => rows)).toEqual([1_500, 800]);
    const rows = (await Promise.all(parts.map(({ path }) => rowsOf(path)))).flat();
    expect(rows).toEqual(await queryExpectedRows(exporting, wholeDay, version));
    expect(rows.filter(({ feedback_stats }) => feedback_stats !== null)).toEqual([]);
  });

  it('derives locations and feedback, also with unusual text and with neither', async () => {
    await giveFeedback([
      { runId: runId(0), key: 'quoted "key", with\ncomma', score: '1' },
      { runId: runId(0), key: 'other', score: '0.25', comment: '"line\\nend, \\"quotes\\" \u2028 é \\ud800"' },
      { runId: runId(4), key: 'label', value: '"good, \\"very\\""' },
      { runId: runId(9), key: 'gone', score: '1', isDeleted: true },
      ...Array.from({ length: 600 }, (_, n) => ({ runId: runId(n * 3), key: 'many', score: `${n}` })),
      { runId: deriveUuid('no such run'), key: 'x', score: '1' },
    ]);
    const [part] = await exportAllChunks(exporting, wholeDay, everything);
    const rows = await rowsOf(part!.path);
    const expected = await queryExpectedRows(exporting, wholeDay, 'v2_beta');
    for (const [index, row] of rows.entries()) expect(row, `row ${index}`).toEqual(expected[index]);
    expect(rows.filter(({ feedback_stats }) => feedback_stats !== null)).toHaveLength(601);
  });

  it('have minutes for each query, and stop with the attempt', async () => {
    const { clickhouse } = exporting.reading.stores;
    const timeouts = new Map<string, number | undefined>();
    const stop = new AbortController();
    let isHanging = false;
    const watched: ClickHouse = {
      ...clickhouse,
      query: (query) => {
        timeouts.set(query.name, query.timeoutMs);
        if (!isHanging || query.name !== 'feedback-figures') return clickhouse.query(query);
        return new Promise((_resolve, reject) => {
          const { disconnected } = getTenantContext() ?? {};
          disconnected?.addEventListener('abort', () => reject(disconnected.reason));
          stop.abort(new Error('the attempt is over'));
        });
      },
    };
    const { encoder } = exporting;
    const encoders = { borrow: () => encoder, release: () => undefined, close: async () => undefined };
    const openSource = createChunkSources({ clickhouse: watched, encoders }, loadConfig({}).config);
    const filtered = openSource({ ...wholeDay, conditions: parseRunFilters({ query: 'x' }) }, everything);
    await filtered.count(stop.signal);
    await filtered.find(undefined, stop.signal);
    const source = openSource(wholeDay, everything);
    const chunk = await source.find(undefined, stop.signal);
    const read = async () => source.read(chunk!, await exporting.folder(), stop.signal);
    await read();
    expect([...timeouts.keys()]).toEqual(
      expect.arrayContaining([
        'find-chunk',
        'size-blocks',
        'feedback-of-chunk',
        'feedback-figures',
        'read-trace-members',
      ]),
    );
    expect([...timeouts].filter(([, timeoutMs = 0]) => timeoutMs < 600_000)).toEqual([]);
    isHanging = true;
    await expect(runForTenant({ organizationId: tenantId }, read)).rejects.toThrow('the attempt is over');
  });

  it('reads the ancestors of runs only from the time of their traces', async () => {
    const { clickhouse } = exporting.reading.stores;
    const times: unknown[] = [];
    const recording = new Proxy(clickhouse, {
      get: (target, name) => {
        const member = Reflect.get(target, name) as unknown;
        if (typeof member !== 'function') return member;
        return (query: Query, ...rest: unknown[]) => {
          if (query?.name === 'read-trace-members') times.push([query.params?.from, query.params?.until]);
          return member.call(target, query, ...rest);
        };
      },
    });
    const stores = { ...exporting.reading.stores, clickhouse: recording };
    const reading = { ...exporting.reading, stores };
    await exportAllChunks({ ...exporting, reading }, wholeDay, { ...everything, fields: ['dotted_order'] });
    const time = (index: number) => noonMicros + index * 10;
    expect(times).toEqual([[time(0), time(runs - 1) + 1]]);
  });

  it.each([
    [['feedback_stats']],
    [['dotted_order']],
    [['parent_run_id', 'id']],
    [['feedback_stats', 'parent_run_ids']],
    [exportFields.filter((field) => !['id', 'dotted_order', 'parent_run_id', 'feedback_stats'].includes(field))],
  ])('with the fields %s', async (fields) => {
    const [part] = await exportAllChunks(exporting, wholeDay, { ...everything, fields });
    const expected = await queryExpectedRows(exporting, wholeDay, 'v2_beta');
    expect((await metadataOf(part!.path)).names).toEqual(fields);
    expect(await rowsOf(part!.path)).toEqual(
      expected.map((row) => Object.fromEntries(fields.map((field) => [field, row[field]]))),
    );
  });
});

it('a trace that expires after the request is exported with its feedback, also if a filter needs both', async () => {
  const { clickhouse } = exporting.reading.stores;
  const [root, child, gone] = [deriveUuid('expiring'), deriveUuid('expiring child'), deriveUuid('expired before')];
  const nowMicros = Date.now() * 1_000;
  const at = (minutes: number) => new Date(nowMicros / 1_000 + minutes * 60_000).toISOString();
  const scope = { ...wholeDay, projectId: deriveUuid('expiring project'), membersUntilMicros: nowMicros - 600_000_000 };
  const event = { projectId: scope.projectId, traceTimeMicros: noonMicros };
  await insertEvents(clickhouse, [
    runEvent({ ...event, runId: root, traceId: root, startTimeMicros: noonMicros, values: { name: 'root' } }),
    runEvent({ ...event, runId: child, traceId: root, startTimeMicros: noonMicros + 1, values: { parentRunId: root } }),
    runEvent({ ...event, runId: gone, traceId: gone, startTimeMicros: noonMicros + 2, values: { name: 'root' } }),
  ]);
  const expire = (ids: string, minutes: number) =>
    runOnStoredTable(
      clickhouse,
      'runs',
      (stored) =>
        `ALTER TABLE ${stored} UPDATE expires_at = now() + INTERVAL ${minutes} MINUTE WHERE id IN (${ids}) SETTINGS mutations_sync = 2`,
    );
  await expire(`'${root}', '${child}'`, -5);
  await expire(`'${gone}'`, -20);
  await giveFeedback([
    { runId: child, key: 'good', score: '1', expiresAt: at(-5) },
    { runId: child, key: 'before', score: '1', expiresAt: at(-20) },
  ]);
  const read = async (filters: Parameters<typeof parseRunFilters>[0]) => {
    const parts = await exportAllChunks(exporting, { ...scope, conditions: parseRunFilters(filters) }, everything);
    return (await Promise.all(parts.map(({ path }) => rowsOf(path)))).flat();
  };
  expect((await read({})).map(({ id }) => id)).toEqual([root, child]);
  const [rated, ...others] = await read({ filter: 'eq(feedback_key, "good")', trace_filter: 'eq(name, "root")' });
  expect([rated?.id, others]).toEqual([child, []]);
  expect(JSON.parse(String(rated?.feedback_stats))).toEqual({ good: expect.objectContaining({ n: 1, avg: 1 }) });
  expect(await read({ filter: 'eq(feedback_key, "before")' })).toEqual([]);
});

it('feedback is read for fewer runs at once if it is large', async () => {
  const { clickhouse } = exporting.reading.stores;
  const projectId = deriveUuid('project with large feedback');
  const ids = Array.from({ length: 60 }, (_, index) => deriveUuid('run with large feedback', index));
  await insertEvents(
    clickhouse,
    ids.map((runId, index) => runEvent({ projectId, runId, traceId: runId, startTimeMicros: noonMicros + index })),
  );
  const comment = JSON.stringify('c'.repeat(1_900));
  await giveFeedback(
    ids.flatMap((runId) => Array.from({ length: 100 }, (_, n) => ({ runId, key: `k${n}`, score: '1', comment }))),
  );
  const counts: (number | undefined)[] = [];
  const watched: ClickHouse = {
    ...clickhouse,
    query: (query) => {
      if (query.name === 'feedback-figures') counts.push(query.externalTable?.rows.length);
      return clickhouse.query(query);
    },
  };
  const { encoder } = exporting;
  const scope = { ...wholeDay, projectId };
  const format = { ...everything, fields: ['id', 'feedback_stats'] as const };
  const { signal } = new AbortController();
  const chunk = (await findChunk(clickhouse, scope, undefined, { rows: 1_000, bytes: 1e9 }, signal))!;
  const request = { scope, chunk, format, folder: await exporting.folder() };
  const part = await makePart({ clickhouse: watched, encoder }, request, signal);
  expect(counts).toEqual([39, 21]);
  const stats = (await rowsOf(part.path)).map(({ feedback_stats }) => JSON.parse(String(feedback_stats)));
  expect(stats.map(({ k99 }) => k99.comments)).toEqual(ids.map(() => [JSON.parse(comment)]));
});

it('each run that matches a filter when it is read is in a file, or counted as late', async () => {
  const { clickhouse } = exporting.reading.stores;
  const names = ['stays', 'ceases', 'begins', 'late', 'late other'] as const;
  const ids = Object.fromEntries(names.map((name) => [name, deriveUuid(`filtered ${name}`)])) as Record<string, string>;
  const membersUntilMicros = Date.now() * 1_000 - 600_000_000;
  const projectId = deriveUuid('filtered project');
  const scope = {
    ...wholeDay,
    projectId,
    membersUntilMicros,
    conditions: parseRunFilters({ filter: 'has(tags, "x")' }),
  };
  const post = (name: string, tags: readonly string[], receivedAtMicros: number) => {
    const runId = ids[name] as string;
    const values = { name, tags: Buffer.from(JSON.stringify(tags)) };
    return runEvent({ projectId, runId, traceId: runId, startTimeMicros: noonMicros, receivedAtMicros, values });
  };
  const read = async () => {
    const parts = await exportAllChunks(exporting, scope, everything);
    const rows = (await Promise.all(parts.map(({ path }) => rowsOf(path)))).flat();
    const counted = await countMembers(clickhouse, scope);
    expect(counted.members).toBe(rows.length);
    return { exported: rows.map(({ id }) => id).sort(), late: counted.late };
  };
  const before = membersUntilMicros - 1_000_000;
  await insertEvents(clickhouse, [
    post('stays', ['x'], before),
    post('ceases', ['x'], before),
    post('begins', ['y'], before),
    post('late', ['x'], membersUntilMicros + 1_000_000),
    post('late other', ['y'], membersUntilMicros + 1_000_000),
  ]);
  expect(await read()).toEqual({ exported: [ids.stays, ids.ceases].sort(), late: 1 });
  // Patches after the request: one run ceases to match, another one begins to.
  const after = membersUntilMicros + 2_000_000;
  await insertEvents(clickhouse, [post('ceases', ['y'], after), post('begins', ['x'], after)]);
  expect(await read()).toEqual({ exported: [ids.stays, ids.begins].sort(), late: 1 });
});
