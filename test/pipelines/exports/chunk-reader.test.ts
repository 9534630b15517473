import { describe, expect, it } from 'vitest';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { type ChunkLimits, type ExportChunk, findChunk } from '../../../pipelines/exports/chunk-reader.ts';
import { buildMembersCondition, countMembers, type ExportCursor } from '../../../pipelines/exports/members.ts';
import type { ExportScope } from '../../../pipelines/exports/record.ts';
import type { RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { parseRunFilters } from '../../../pipelines/runs/filter/run-filter.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { freshStores } from '../../engines/stores.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { Random } from '../../histories/random.ts';
import { seed as firstSeed } from '../../house/seed.ts';
import {
  deriveUuid,
  insertEvents,
  noonMicros,
  otherProjectId,
  projectId,
  runEvent,
  tenantId,
} from '../runs/run-events.ts';
import { wholeDay } from './exporting.ts';

const stores = forSuite(() => freshStores());
const clickhouse = createProxyTo(() => stores.clickhouse);
const madeMicros = noonMicros + 86_400_000_000;
const scope: ExportScope = { ...wholeDay, membersUntilMicros: madeMicros };

interface KnownRun {
  readonly event: RunEvent;
  readonly bytes: number;
  readonly isMember: boolean;
  readonly isLate: boolean;
}

/** Stores runs of one day with many equal times, some of them patched, late or deleted, and runs outside the scope. */
async function fillDay(random: Random): Promise<Map<string, KnownRun>> {
  await runOnStoredTable(clickhouse, 'runs', (stored) => `TRUNCATE TABLE ${stored}`);
  const known = new Map<string, KnownRun>();
  const batches: RunEvent[][] = [[], [], []];
  const put = (event: RunEvent) => random.pick(batches).push(event);
  const values = (bytes: number) => ({ inputs: Buffer.from(`"${'x'.repeat(Math.max(bytes - 2, 0))}"`) });
  const times = Array.from({ length: random.between(1, 12) }, () =>
    random.pick([0, 1, 2, 3_600_000_000, random.int(8e10)]),
  );
  for (let count = random.between(1, 40); count > 0; count--) {
    const startTimeMicros = scope.window.fromMicros + random.pick(times);
    const runId = random.uuid();
    const traceId = random.chance(0.5) ? runId : random.uuid();
    const isLate = random.chance(0.1);
    const isDeleted = random.chance(0.1);
    const bytes = random.pick([2, 2, 10, 100, 5_000]);
    const receivedAtMicros = isLate ? madeMicros + random.pick([1, 1e9]) : random.pick([madeMicros, madeMicros - 1e9]);
    const event = runEvent({ runId, traceId, startTimeMicros, receivedAtMicros, values: values(bytes) });
    put(event);
    let maxInputBytes = bytes;
    if (random.chance(0.3)) {
      // Events that arrive after the snapshot do not change which runs are members.
      put({ ...event, kind: 'patch', receivedAtMicros: receivedAtMicros + 5e9, values: values(50) });
      maxInputBytes = Math.max(bytes, 50);
    }
    // Each text is stored with eight bytes.
    const size = maxInputBytes + 8 + (event.dottedOrder?.length ?? 0) + 8;
    known.set(runId, { event, bytes: size, isMember: !isLate && !isDeleted, isLate: isLate && !isDeleted });
    if (isDeleted) put({ ...event, kind: 'patch', values: {}, deletedAtMicros: madeMicros });
    if (random.chance(0.2)) put(event);
  }
  for (const foreign of [
    { startTimeMicros: scope.window.fromMicros - 1 },
    { startTimeMicros: scope.window.untilMicrosExclusive },
    { projectId: otherProjectId },
    { tenantId: otherProjectId },
  ]) {
    put(runEvent(foreign));
  }
  for (const batch of batches) await insertEvents(clickhouse, batch);
  return known;
}

async function listMembers(chunk: Pick<ExportChunk, 'after' | 'last'>): Promise<string[]> {
  const { sql, params } = buildMembersCondition(scope, chunk);
  const rows = await clickhouse.query<{ id: string }>({
    name: 'test',
    sql: `SELECT id FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at) ORDER BY start_time, trace_id, id`,
    params,
  });
  return rows.map(({ id }) => id);
}

async function readChunks(limits: () => ChunkLimits, between = async () => {}): Promise<ExportChunk[]> {
  const chunks: ExportChunk[] = [];
  for (let after: ExportCursor | undefined; ; ) {
    const chunk = await findChunk(clickhouse, scope, after, limits());
    if (chunk === undefined) return chunks;
    expect(chunk.after).toEqual(after);
    chunks.push(chunk);
    after = chunk.last;
    await between();
  }
}

const seeds = Array.from({ length: 4 }, (_, index) => firstSeed + index);

describe('chunks', () => {
  it.each(seeds)('cover the members of a window exactly: seed %i', async (seed) => {
    const random = new Random(seed);
    const known = await fillDay(random);
    const members = [...known.values()].filter(({ isMember }) => isMember);
    const late = [...known.values()].filter(({ isLate }) => isLate);
    expect(await countMembers(clickhouse, scope)).toEqual({ members: members.length, late: late.length });

    for (const getLimits of [
      () => ({ rows: 1, bytes: 1e9 }),
      () => ({ rows: 1e6, bytes: 1 }),
      () => ({ rows: 1e6, bytes: 1e9 }),
      () => ({ rows: random.between(1, 40), bytes: random.pick([1, 100, 1_000, 20_000, 1e9]) }),
    ]) {
      let limits = getLimits();
      const used: ChunkLimits[] = [];
      const chunks = await readChunks(() => {
        limits = getLimits();
        used.push(limits);
        return limits;
      });
      const found: string[] = [];
      for (const [index, chunk] of chunks.entries()) {
        const ids = (await listMembers(chunk)).filter((id) => known.get(id)?.isMember);
        const bytes = ids.reduce((sum, id) => sum + (known.get(id) as KnownRun).bytes, 0);
        expect({ rows: chunk.rows, bytes: chunk.bytes }).toEqual({ rows: ids.length, bytes });
        expect(chunk.last.runId).toBe(ids.at(-1));
        const limit = used[index] as ChunkLimits;
        expect(chunk.rows).toBeLessThanOrEqual(limit.rows);
        if (chunk.rows > 1) expect(chunk.bytes).toBeLessThanOrEqual(limit.bytes);
        found.push(...ids);
        const next = chunks[index + 1];
        if (next === undefined) continue;
        // The chunk ended because the next run did not fit into it.
        const [first] = (await listMembers({ after: chunk.last, last: next.last })).filter(
          (id) => known.get(id)?.isMember,
        );
        const isFull =
          chunk.rows === limit.rows || bytes + (known.get(first as string) as KnownRun).bytes > limit.bytes;
        expect(isFull, `chunk ${index} could have held more`).toBe(true);
      }
      expect(found).toHaveLength(members.length);
      expect(new Set(found)).toEqual(new Set(members.map(({ event }) => event.runId)));
    }
  });

  it('contain every other run once while runs are deleted or arrive late', async () => {
    const random = new Random(7);
    const known = await fillDay(random);
    const members = [...known.values()].filter(({ isMember }) => isMember);
    const deletedIds = new Set<string>();
    const found: string[] = [];
    let after: ExportCursor | undefined;
    for (;;) {
      const chunk = await findChunk(clickhouse, scope, after, { rows: random.between(1, 10), bytes: 1e9 });
      if (chunk === undefined) break;
      found.push(...(await listMembers(chunk)).filter((id) => known.get(id)?.isMember));
      after = chunk.last;
      const { event } = random.pick(members);
      deletedIds.add(event.runId);
      await insertEvents(clickhouse, [
        { ...event, kind: 'patch', values: {}, deletedAtMicros: madeMicros + 1e9 },
        runEvent({ startTimeMicros: event.startTimeMicros, receivedAtMicros: madeMicros + 1 }),
      ]);
    }
    expect(new Set(found).size).toBe(found.length);
    const missing = members.map(({ event }) => event.runId).filter((id) => !found.includes(id));
    expect(missing.filter((id) => !deletedIds.has(id))).toEqual([]);
  });

  it('end after a number of stored rows, also if few of them match the filter', async () => {
    await runOnStoredTable(clickhouse, 'runs', (stored) => `TRUNCATE TABLE ${stored}`);
    const place = (number: number) => scope.window.fromMicros + number * 1_000;
    const wanted = [70, 71, 95, 130, 299];
    const events = Array.from({ length: 300 }, (_, number) =>
      runEvent({
        ...{ startTimeMicros: place(number), receivedAtMicros: madeMicros },
        values: { name: wanted.includes(number) ? 'wanted' : 'other' },
      }),
    );
    await insertEvents(clickhouse, events);
    const filtered = { ...scope, conditions: parseRunFilters({ filter: 'eq(name, "wanted")' }) };
    const limits = { rows: 10, bytes: 1e9, storedRows: 20 };
    const chunks: ExportChunk[] = [];
    for (let after: ExportCursor | undefined; ; after = chunks.at(-1)?.last) {
      const chunk = await findChunk(clickhouse, filtered, after, limits);
      if (chunk === undefined) break;
      chunks.push(chunk);
      expect((await listMembers(chunk)).length).toBeLessThanOrEqual(limits.storedRows);
    }
    const ends = chunks.map(({ last, rows }) => [last.startTimeMicros, rows]);
    expect(ends).toEqual([
      [place(71), 2],
      [place(95), 1],
      [place(130), 1],
      [place(299), 1],
    ]);
  });

  it('are counted hour by hour if a filter would read very many rows at once', async () => {
    await runOnStoredTable(clickhouse, 'runs', (stored) => `TRUNCATE TABLE ${stored}`);
    const hourMicros = 3_600_000_000;
    const window = { fromMicros: scope.window.fromMicros + 1_800_000_000, untilMicrosExclusive: noonMicros + 1 };
    // Traces that begin before the window or span several hours.
    const events = Array.from({ length: 24 }, (_, hour) => {
      const traceId = deriveUuid('trace', hour);
      const traceTimeMicros = scope.window.fromMicros + hour * hourMicros;
      const call = { traceId, traceTimeMicros, startTimeMicros: traceTimeMicros + 1.5 * hourMicros };
      return [
        runEvent({
          traceId,
          runId: traceId,
          startTimeMicros: traceTimeMicros,
          receivedAtMicros: madeMicros + (hour % 2),
        }),
        runEvent({ ...call, receivedAtMicros: madeMicros, values: { runType: 'llm', totalTokens: 100 } }),
      ];
    });
    await insertEvents(clickhouse, events.flat());
    const asked: number[] = [];
    const watched: ClickHouse = {
      ...clickhouse,
      query: async (query) => {
        if (query.name === 'count-members') asked.push(Number(query.params?.until) - Number(query.params?.from));
        return clickhouse.query(query);
      },
    };
    const filtered = { ...scope, window, conditions: parseRunFilters({ filter: 'gt(total_tokens, 50)' }) };
    const whole = await countMembers(watched, filtered);
    expect(asked).toHaveLength(1);
    expect(await countMembers(watched, filtered, undefined, 3)).toEqual(whole);
    expect(asked.slice(1)).toHaveLength(12);
    expect(Math.max(...asked.slice(1))).toBe(hourMicros);
    // Roots from one to twelve o'clock, of which every other one is late, and calls from half past one to half past eleven.
    expect(whole).toEqual({ members: 6 + 11, late: 6 });
  });

  it('does not find a chunk in an empty window, and stops at an aborted signal', async () => {
    await runOnStoredTable(clickhouse, 'runs', (stored) => `TRUNCATE TABLE ${stored}`);
    expect(await findChunk(clickhouse, scope, undefined, { rows: 10, bytes: 10 })).toBeUndefined();
    expect(await countMembers(clickhouse, scope)).toEqual({ members: 0, late: 0 });
    const reason = new Error('enough');
    await expect(
      findChunk(clickhouse, scope, undefined, { rows: 1, bytes: 1 }, AbortSignal.abort(reason)),
    ).rejects.toBe(reason);
  });

  it('splits runs of one moment that exceed a chunk', async () => {
    await runOnStoredTable(clickhouse, 'runs', (stored) => `TRUNCATE TABLE ${stored}`);
    await clickhouse.command({
      name: 'test',
      sql: `INSERT INTO run_events (version, location_version, tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id)
        SELECT 1, 1, {tenant:UUID}, {project:UUID}, fromUnixTimestamp64Micro({from:Int64} + intDiv(number, 9000)), id, id, now64(6), toDateTime64(0, 6), id, id
        FROM (SELECT number, generateUUIDv4(number) AS id FROM numbers(20000))`,
      params: { tenant: tenantId, project: projectId, from: scope.window.fromMicros },
    });
    const chunks = await readChunks(() => ({ rows: 3_000, bytes: 1e9 }));
    expect(chunks.map(({ rows }) => rows)).toEqual([3_000, 3_000, 3_000, 3_000, 3_000, 3_000, 2_000]);
  });
});
