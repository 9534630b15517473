import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../../infra/postgres/pool.ts';
import { groupings } from '../../../pipelines/usage/grouping.ts';
import { markHoursDirty } from '../../../pipelines/usage/mark-hours-dirty.ts';
import type { UsageCounts } from '../../../pipelines/usage/read-usage-rows.ts';
import { createUsageCounts } from '../../../pipelines/usage/report.ts';
import { runRollUp } from '../../../pipelines/usage/run-roll-up.ts';
import { type BucketPlan, planBuckets } from '../../../pipelines/usage/stride.ts';
import { freshStores } from '../../engines/stores.ts';
import { hoursOf, insertRuns, type RunRow, runRow, uuidOf } from './trace-rows.ts';

let stores: Awaited<ReturnType<typeof freshStores>>;
beforeAll(async () => {
  stores = await freshStores();
});
afterAll(() => stores?.close());

const plenty = 2 ** 20;
const dayMs = 86_400_000;
const april = Date.UTC(2026, 3, 1);
const planOf = (startDay: number, endDay: number) =>
  planBuckets({ startMs: april + startDay * dayMs, endMs: april + endDay * dayMs });
const traceOn = (day: number, row: Partial<RunRow> = {}) =>
  runRow({ traceMicros: (april + (day + 0.3) * dayMs) * 1_000, ...row });

async function add(...rows: readonly RunRow[]): Promise<void> {
  await insertRuns(stores.clickhouse, rows);
  await markHoursDirty(stores.database, hoursOf(rows));
}
const rollUp = () => runRollUp(stores);
const total = ({ rows }: UsageCounts) => rows.flatMap(({ traces }) => [...traces]).reduce((sum, each) => sum + each, 0);

/** The total that a report reads, and the number of its ClickHouse queries. */
function watched(cacheBytes: number, around: { before?: () => Promise<unknown>; after?: () => Promise<unknown> } = {}) {
  let reads = 0;
  const counts = createUsageCounts({
    database: stores.database,
    cacheBytes,
    clickhouse: {
      async queryText(query) {
        reads += 1;
        await around.before?.();
        const answer = await stores.clickhouse.queryText(query);
        await around.after?.();
        return answer;
      },
    },
  });
  return {
    reads: () => reads,
    of: async (workspaceIds: readonly string[], plan: BucketPlan) => total(await counts(plan, workspaceIds, 'project')),
  };
}

describe('usage counts of a report', () => {
  it('are cached until a roll-up run changes a day of one of its workspaces', async () => {
    const [mine, other, foreign] = ['mine', 'other', 'foreign'].map((name) => uuidOf('unchanged', name)) as [
      string,
      string,
      string,
    ];
    const plan = planOf(2, 5);
    const counts = watched(plenty);
    await add(traceOn(2, { tenantId: mine }), traceOn(4, { tenantId: other }));
    await rollUp();
    expect(await counts.of([mine, other], plan)).toBe(2);
    expect(await counts.of([other, mine], plan)).toBe(2);
    expect(counts.reads()).toBe(1);

    // Another workspace, the days around the range, and a roll-up run without changes.
    await add(traceOn(3, { tenantId: foreign }), traceOn(1, { tenantId: mine }), traceOn(5, { tenantId: mine }));
    await rollUp();
    await rollUp();
    expect(await counts.of([mine, other], plan)).toBe(2);
    expect(counts.reads()).toBe(1);

    await add(traceOn(4, { tenantId: other }));
    // Marked dirty, and not counted yet.
    expect(await counts.of([mine, other], plan)).toBe(2);
    expect(counts.reads()).toBe(1);
    await rollUp();
    expect(await counts.of([mine, other], plan)).toBe(3);
    expect(counts.reads()).toBe(2);
  });

  it('cover any range, including one whose seconds need more than 32 bits', async () => {
    const workspace = uuidOf('centuries', 1);
    await add(traceOn(2, { tenantId: workspace }));
    await rollUp();
    const plan = planBuckets({ startMs: Date.UTC(2020, 0, 1), endMs: Date.UTC(2100, 0, 1) });
    const counts = watched(plenty);
    expect(await counts.of([workspace], plan)).toBe(1);
    expect(await counts.of([workspace], plan)).toBe(1);
    expect(counts.reads()).toBe(1);
  });

  it('are cached by workspaces, range and grouping', async () => {
    const [mine, other] = [uuidOf('one question', 1), uuidOf('one question', 2)];
    await add(traceOn(2, { tenantId: mine }), traceOn(3, { tenantId: mine }), traceOn(2, { tenantId: other }));
    await rollUp();
    const counts = createUsageCounts({ ...stores, cacheBytes: plenty });
    for (let again = 0; again < 2; again++) {
      expect(total(await counts(planOf(2, 5), [mine], 'project'))).toBe(2);
      expect(total(await counts(planOf(2, 3), [mine], 'project'))).toBe(1);
      expect(total(await counts(planOf(2, 5), [other], 'project'))).toBe(1);
      expect(total(await counts(planOf(2, 5), [mine, other], 'project'))).toBe(3);
      expect(total(await counts(planOf(2, 5), [], 'project'))).toBe(0);
      expect((await counts(planOf(2, 5), [mine], 'workspace')).ids).toEqual([mine]);
      expect((await counts(planOf(2, 5), [mine], 'user')).ids).toEqual([uuidOf('user')]);
    }
  });

  it.each(['before', 'after'] as const)(
    'are not cached for long if a roll-up run commits %s ClickHouse reads them',
    async (when) => {
      const tenantId = uuidOf('overtaken', when);
      const plan = planOf(2, 5);
      await add(traceOn(2, { tenantId }));
      await rollUp();
      let isFirst = true;
      const counts = watched(plenty, {
        [when]: async () => {
          if (!isFirst) return;
          isFirst = false;
          await add(traceOn(3, { tenantId }));
          await rollUp();
        },
      });
      expect(await counts.of([tenantId], plan)).toBe(when === 'before' ? 2 : 1);
      expect(await counts.of([tenantId], plan)).toBe(2);
      expect(await counts.of([tenantId], plan)).toBe(2);
      expect(counts.reads()).toBe(2);
    },
  );

  it('read during a roll-up run expire at the end of that run', async () => {
    const tenantId = uuidOf('half-way');
    const plan = planOf(2, 5);
    await add(traceOn(2, { tenantId }));
    await rollUp();
    const counts = watched(plenty);
    const commits: Database = {
      ...stores.database,
      transaction: (work) =>
        stores.database.transaction(async (sql) => {
          const result = await work(sql);
          // All is counted, nothing is committed.
          expect(await counts.of([tenantId], plan)).toBe(2);
          return result;
        }),
    };
    await add(traceOn(3, { tenantId }));
    await runRollUp({ ...stores, database: commits });
    await add(traceOn(4, { tenantId }));
    await rollUp();
    expect(await counts.of([tenantId], plan)).toBe(3);
  });

  it('are read each time if the cache is disabled, or if they exceed its size', async () => {
    const tenantId = uuidOf('nothing kept');
    await add(traceOn(2, { tenantId }));
    await rollUp();
    for (const cacheBytes of [0, 64]) {
      const counts = watched(cacheBytes);
      for (let again = 0; again < 3; again++) expect(await counts.of([tenantId], planOf(2, 5))).toBe(1);
      expect(counts.reads()).toBe(3);
    }
  });

  it('equal the answer of ClickHouse after any history of traces and roll-up runs', async () => {
    const tenants = [1, 2, 3].map((tenant) => uuidOf('history of counts', tenant));
    const step = fc.oneof(
      fc.record({ day: fc.integer({ min: 0, max: 8 }), tenant: fc.constantFrom(...tenants) }),
      fc.constant('pass' as const),
      fc.record({
        from: fc.integer({ min: 0, max: 8 }),
        days: fc.integer({ min: 1, max: 4 }),
        of: fc.subarray(tenants, { minLength: 1 }),
        groupBy: fc.constantFrom(...groupings),
      }),
    );
    const kept = createUsageCounts({ ...stores, cacheBytes: plenty });
    const read = createUsageCounts({ ...stores, cacheBytes: 0 });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 25 }), async (steps) => {
        for (const each of steps) {
          if (each === 'pass') await rollUp();
          else if ('day' in each) await add(traceOn(each.day, { tenantId: each.tenant }));
          else {
            const plan = planOf(each.from, each.from + each.days);
            expect(sorted(await kept(plan, each.of, each.groupBy))).toEqual(
              sorted(await read(plan, each.of, each.groupBy)),
            );
          }
        }
      }),
      { numRuns: 12 },
    );
  });
});

/** ClickHouse returns rows in any order. */
function sorted({ ids, rows }: UsageCounts): string[] {
  return rows
    .flatMap(({ bucket, idIndexes, traces }) =>
      [...idIndexes].map((index, entry) => `${bucket} ${ids[index]} ${traces[entry]}`),
    )
    .sort();
}
