import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Query } from '../../../infra/clickhouse/clickhouse.ts';
import type { RunEvent, RunValues } from '../../../pipelines/ingest/run-event/run-event.ts';
import { parseRunFilters } from '../../../pipelines/runs/filter/run-filter.ts';
import { listRuns, v2ListEnvelope } from '../../../pipelines/runs/query-runs.ts';
import { runBytes } from '../../../pipelines/runs/run-columns.ts';
import { selectV2Fields } from '../../../pipelines/runs/run-select.ts';
import { forSuite } from '../../for-suite.ts';
import fc from '../../house/fast-check.ts';
import { openReading, wholeQuery } from './reading.ts';
import { deriveUuid, insertEvents, noonMicros, runEvent, tenantId } from './run-events.ts';

const reading = forSuite(() => openReading());

const dayMicros = 86_400_000_000;
const store = (events: readonly RunEvent[]) => insertEvents(reading.stores.clickhouse, events);

/** Few distinct times, so that many runs share a time; some are months apart; one is in the future. */
const times = [0, 1, 2, 3_600_000_000, dayMicros, 30 * dayMicros, 200 * dayMicros].map((micros) => noonMicros - micros);
const anyTime = fc.constantFrom(...times, Date.now() * 1_000 + 3_600_000_000);

interface Planned {
  readonly startTimeMicros: number;
  readonly patched: boolean;
  readonly failed: boolean;
  readonly deleted: boolean;
  readonly late: boolean;
}

const plan = fc.record({
  startTimeMicros: anyTime,
  patched: fc.boolean(),
  failed: fc.boolean(),
  deleted: fc.integer({ min: 0, max: 9 }).map((n) => n === 0),
  late: fc.boolean(),
});

function eventsOf(run: Planned & { runId: string; projectId: string }): { posts: RunEvent[]; patches: RunEvent[] } {
  const base = { runId: run.runId, projectId: run.projectId, startTimeMicros: run.startTimeMicros };
  const error = run.failed ? { error: Buffer.from('"boom"') } : {};
  const deletion = run.deleted ? [runEvent({ ...base, kind: 'patch', deletedAtMicros: noonMicros })] : [];
  return {
    posts: [runEvent({ ...base, values: { name: 'run', ...(run.patched ? {} : error) } })],
    patches: [...(run.patched ? [runEvent({ ...base, kind: 'patch', values: error })] : []), ...deletion],
  };
}

describe('pages', () => {
  it('contain each run once and in order for any limit, order and condition, while newer runs arrive', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(plan, { minLength: 1, maxLength: 40 }),
        fc.integer({ min: 1, max: 15 }),
        fc.constantFrom('asc' as const, 'desc' as const),
        fc.constantFrom(undefined, true, false),
        async (planned, limitRows, order, hasError) => {
          const projectId = await reading.newProject();
          const runs = planned.map((run) => ({ ...run, runId: randomUUID(), projectId }));
          const events = runs.map(eventsOf);
          await store(events.flatMap(({ posts }) => posts));
          await store(events.flatMap(({ patches }) => patches));
          const expected = runs.filter((run) => !run.deleted && (hasError ?? run.failed) === run.failed);

          const read: { id: string; time: string }[] = [];
          const newer: string[] = [];
          for (let cursor: string | undefined; ; ) {
            const page = await reading.page({
              projectIds: [projectId],
              filter: { hasError },
              order,
              limitRows,
              cursor,
              select: ['end_time'],
            });
            expect(page.runs.length).toBeLessThanOrEqual(limitRows);
            read.push(...page.runs.map((run) => ({ id: String(run.id), time: String(run.start_time) })));
            if (page.cursors.next === null) break;
            expect(page.runs.length).toBeGreaterThan(0);
            cursor = page.cursors.next;
            if (newer.length < 3) {
              const late = { ...plannedNewest, runId: randomUUID(), projectId };
              newer.push(late.runId);
              await store(eventsOf({ ...late, failed: hasError ?? false }).posts);
            }
          }
          const known = read.filter(({ id }) => !newer.includes(id));
          expect(known.map(({ id }) => id).sort()).toEqual(expected.map(({ runId }) => runId).sort());
          const order_ = (a: string, b: string) => (order === 'asc' ? a <= b : a >= b);
          for (const [index, { time }] of read.entries()) {
            expect(index === 0 || order_(read[index - 1]?.time ?? '', time)).toBe(true);
          }
          // With the newest first, later arrivals would be before the first page.
          if (order === 'desc') expect(known.length).toBe(read.length);
        },
      ),
      { numRuns: 8 },
    );
  });
  const plannedNewest: Planned = {
    startTimeMicros: Date.now() * 1_000 + 7_200_000_000,
    patched: false,
    failed: false,
    deleted: false,
    late: true,
  };

  it('in ascending order are the reverse of descending, including ties', async () => {
    const projectId = await reading.newProject();
    await store([...Array(60).keys()].map((n) => runEvent({ projectId, startTimeMicros: times[n % times.length]! })));
    const { ids: up } = await reading.all({ projectIds: [projectId], order: 'asc', limitRows: 7 });
    const { ids: down } = await reading.all({ projectIds: [projectId], order: 'desc', limitRows: 11 });
    expect(new Set(up).size).toBe(60);
    expect(up).toEqual(down.reverse());
    const { ids: named } = await reading.all({ runIds: up, order: 'asc', limitRows: 13 });
    expect(named).toEqual(up);
  });

  it('end early at their size in bytes, never empty', async () => {
    const projectId = await reading.newProject();
    const runs = [10, 10, 10_000, 10, 10].map((size, n) =>
      runEvent({
        projectId,
        startTimeMicros: noonMicros - n,
        values: { inputs: Buffer.from(`"${'x'.repeat(size)}"`) },
      }),
    );
    await store(runs);
    const runIds = runs.map(({ runId }) => runId);
    for (const query of [{ projectIds: [projectId] }, { runIds }]) {
      const read = await reading.all(query, { config: { maxPageBytes: 1_000 } });
      expect(read.ids).toEqual(runIds);
      expect(read.sizes).toEqual([2, 1, 2]);
    }
  });

  const long = Buffer.from(`"${'x'.repeat(2 ** 20)}"`);
  it.each<[string, readonly RunValues[]]>([
    ['inputs of the post', [{ inputs: long }]],
    ['tags', [{ tags: Buffer.from(`[${long}]`) }]],
    ['a name', [{ name: `${long}` }]],
    ['outputs of a patch before the last one', [{}, { outputs: long }, { endedAtMicros: noonMicros }]],
    ['an error of a patch before another one', [{}, { error: long }, { outputs: Buffer.from('{}') }]],
    ['usage details of a patch', [{}, { usageDetails: Buffer.from(`{"a":${long}}`) }]],
  ])('count every text of a run: %s', async (_what, [post, ...patches]) => {
    const projectId = await reading.newProject();
    const runs = [0, 1].map((n) => runEvent({ projectId, startTimeMicros: noonMicros - n, values: post as RunValues }));
    await store(runs);
    for (const values of patches) await store(runs.map((run) => ({ ...run, kind: 'patch', values })));
    const config = { maxPageBytes: 2 * long.length - 1 };
    expect((await reading.all({ projectIds: [projectId] }, { config })).sizes).toEqual([1, 1]);
    const [size] = await reading.stores.clickhouse.query<{ bytes: number }>({
      name: 'test',
      sql: `SELECT max(${runBytes}) AS bytes FROM runs FINAL WHERE session_id = '${projectId}'`,
    });
    expect(size?.bytes).toBeLessThan(long.length + 1_000);
  });

  it('count inputs and outputs of different patches', async () => {
    const projectId = await reading.newProject();
    const runs = [0, 1].map((n) => runEvent({ projectId, startTimeMicros: noonMicros - n }));
    await store(runs);
    for (const values of [{ inputs: long }, { outputs: long }, { inputs: Buffer.from('{}') }])
      await store(runs.map((run) => ({ ...run, kind: 'patch', values })));
    const sizesWithin = async (maxPageBytes: number) =>
      (await reading.all({ projectIds: [projectId] }, { config: { maxPageBytes } })).sizes;
    expect(await sizesWithin(4 * long.length - 1)).toEqual([1, 1]);
    expect(await sizesWithin(5 * long.length)).toEqual([2]);
  });

  it('are the chunks of a list of all runs, which is refused if it is too large for one response', async () => {
    const projectId = await reading.newProject();
    const runs = [700, 600, 50].map((size, n) =>
      runEvent({
        projectId,
        startTimeMicros: noonMicros + n,
        values: { inputs: Buffer.from(`"${'x'.repeat(size)}"`) },
      }),
    );
    await store(runs);
    const { order, ...query } = wholeQuery({ projectIds: [projectId], order: 'asc' });
    const list = async (maxPageBytes: number) => {
      const envelope = { before: '', after: () => '' };
      return listRuns({ ...reading.deps, config: { maxPageBytes } }, { ...query, order }, envelope);
    };
    const whole = await list(1_000_000);
    expect((JSON.parse(whole.toString()) as { id: string }[]).map(({ id }) => id)).toEqual(
      runs.map(({ runId }) => runId),
    );
    expect(await list(whole.length)).toEqual(whole);
    for (const tooSmall of [whole.length - 2, 1_320, 720, 1])
      await expect(list(tooSmall)).rejects.toMatchObject({
        code: 'BAD_REQUEST',
        message: expect.stringContaining('large'),
      });
  });

  it.each<[string, number | string]>([
    ['ID', 3],
    ['START_TIME', 3],
    ['NAME', 3],
    ['INPUTS', 'BAD_REQUEST'],
    ['METADATA', 'BAD_REQUEST'],
  ])('of large runs with only %s count the size of the response', async (name, expected) => {
    const projectId = await reading.newProject();
    const large = Buffer.from(`{"metadata":{"text":"${'x'.repeat(4_000)}"}}`);
    await store(
      [0, 1, 2].map((n) =>
        runEvent({ projectId, startTimeMicros: noonMicros + n, values: { name: 'n', inputs: large, extra: large } }),
      ),
    );
    const { selected: _, ...query } = wholeQuery({ projectIds: [projectId] });
    const deps = { ...reading.deps, config: { maxPageBytes: 8_000 } };
    const read = listRuns(deps, { ...query, selected: selectV2Fields([name]) }, v2ListEnvelope).then(
      (body) => JSON.parse(body.toString()).items.length,
      ({ code }) => code,
    );
    expect(await read).toBe(expected);
  });

  it('are not empty if runs disappear between the two steps', async () => {
    const projectId = await reading.newProject();
    const runs = [...Array(4).keys()].map((n) => runEvent({ projectId, startTimeMicros: noonMicros - n }));
    await store(runs);
    const { clickhouse } = reading.deps;
    let deleted = false;
    const queryText = async (query: Query & { format: string }) => {
      if (!deleted) await store(runs.slice(0, 2).map((run) => ({ ...run, deletedAtMicros: noonMicros })));
      deleted = true;
      return clickhouse.queryText(query);
    };
    const page = await reading.page(
      { projectIds: [projectId], limitRows: 2 },
      { clickhouse: { ...clickhouse, queryText } },
    );
    expect(page.runs.map((run) => run.id)).toEqual(runs.slice(2).map((run) => run.runId));
  });
});

it('a name among dense runs takes one query for its candidates, also in a window with too few of them', async () => {
  const projectId = await reading.newProject();
  const { clickhouse } = reading.stores;
  // A run every 20 seconds in the last five days: the first window has 4,320 runs, and 43 of the name.
  const start = `fromUnixTimestamp64Micro(toInt64(${Date.now() * 1_000} - number * 20000000))`;
  await clickhouse.command({
    name: 'test',
    sql: `INSERT INTO run_events (version, location_version, is_patch, tenant_id, session_id, start_time, trace_id, id, trace_time,
            first_received_at, user_id, key_id, name)
          SELECT 1, 1, false, '${tenantId}', '${projectId}', ${start}, reinterpretAsUUID(number + 1) AS run, run, ${start}, ${start},
            run, run, if(number % 100 = 7, 'common', 'step') FROM numbers(21600)`,
  });
  const names: string[] = [];
  const query = <Row>(request: Query) => {
    names.push(request.name);
    return clickhouse.query<Row>(request);
  };
  const conditions = parseRunFilters({ filter: 'eq(name, "common")' });
  const page = await reading.page(
    { projectIds: [projectId], filter: { conditions } },
    { clickhouse: { ...clickhouse, query } },
  );
  expect(page.runs.length).toBe(100);
  expect(names.slice(0, 3)).toEqual(['probe-runs', 'find-candidates', 'find-runs']);
  const { ids } = await reading.all({ projectIds: [projectId], filter: { conditions } });
  expect(new Set(ids).size).toBe(216);
});

describe('a project of many runs', () => {
  const projectId = deriveUuid('large project');
  const runs = 4_500;
  const names: string[] = [];

  /**
   * Runs at these times: a third at one moment, a third one second apart, a third one hour apart. Every 250th run
   * failed, by patch.
   */
  beforeAll(async () => {
    await reading.newProject(projectId);
    const keys = `toUUID('${tenantId}') AS tenant_id, toUUID('${projectId}') AS session_id,
      fromUnixTimestamp64Micro(toInt64(${noonMicros} - multiIf(number < 1500, 0, number < 3000, (number - 1500) * 1000000,
        (number - 1500) * 3600000000))) AS start_time, id AS trace_id,
      reinterpretAsUUID(concat(reinterpretAsString(cityHash64(number)), reinterpretAsString(cityHash64(number, 1)))) AS id,
      start_time AS trace_time, start_time AS first_received_at, toUUID('${deriveUuid('user')}') AS user_id,
      toUUID('${deriveUuid('key')}') AS key_id`;
    const columns = 'tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id';
    const { clickhouse } = reading.stores;
    for (const [isPatch, column, value] of [
      [false, 'name', `'run'`],
      [true, 'error', `if(number % 250 = 7, '"boom"', NULL)`],
    ]) {
      await clickhouse.command({
        name: 'test',
        sql: `INSERT INTO run_events (version, location_version, is_patch, ${columns}, ${column}) SELECT 1, 1, ${isPatch}, ${keys}, ${value} FROM numbers(${runs})`,
      });
    }
    names.length = 0;
  });

  /** Returns the names of the queries that `read` sends. */
  function counted() {
    const { clickhouse } = reading.deps;
    const query = <Row>(request: Query) => {
      names.push(request.name);
      return clickhouse.query<Row>(request);
    };
    return { clickhouse: { ...clickhouse, query } };
  }

  it.each(['asc', 'desc'] as const)('%s: every run once', async (order) => {
    const { ids, sizes } = await reading.all({ projectIds: [projectId], order, select: ['name'] });
    expect(ids.length).toBe(runs);
    expect(new Set(ids).size).toBe(runs);
    expect(sizes).toEqual(Array(runs / 100).fill(100));
  });

  it.each(['asc', 'desc'] as const)('%s: the few matching runs', async (order) => {
    const { ids, sizes } = await reading.all({
      projectIds: [projectId],
      order,
      filter: { hasError: true },
      limitRows: 10,
    });
    expect(new Set(ids).size).toBe(runs / 250);
    expect(sizes).toEqual([10, 8]);
  });

  it.each([
    ['newest first', {}, 12],
    ['oldest first', { order: 'asc' as const }, 12],
    ['of few matching runs', { filter: { hasError: true } }, 24],
    ['of no matching runs', { filter: { runType: 'parser' as const } }, 24],
    ['of a trace', { filter: { traceId: deriveUuid('none') } }, 4],
  ])('a page %s takes a bounded number of queries', async (_name, query, max) => {
    names.length = 0;
    await reading.page({ projectIds: [projectId], ...query }, counted());
    expect(names.length).toBeLessThanOrEqual(max);
  });
});
