import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import type { ClickHouse, Query } from '../../../../infra/clickhouse/clickhouse.ts';
import { parseRunFilters } from '../../../../pipelines/runs/filter/run-filter.ts';
import { findPage } from '../../../../pipelines/runs/find-page.ts';
import type { Order, RunKey } from '../../../../pipelines/runs/run-columns.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, projectId, runEvent, tenantId } from '../run-events.ts';

const stores = forSuite(() => freshStores());
beforeAll(async () => {
  const extra = json({ metadata: { user_id: 'u1', thread_id: 't1' } });
  await insertEvents(stores.clickhouse, [runEvent({ values: { name: 'one', tags: json(['beta']), extra } })]);
});

/** Returns the indexes of `runs` that the first query for the runs of a page uses. */
async function findUsedIndexes(filter: string): Promise<string[]> {
  const queries: Query[] = [];
  const { clickhouse } = stores;
  const observed: ClickHouse = {
    ...clickhouse,
    query: <Row>(query: Query) => {
      queries.push(query);
      return clickhouse.query<Row>(query);
    },
  };
  await findPage(observed, {
    scope: { tenantId, projectIds: [projectId] },
    filter: { conditions: parseRunFilters({ filter }) },
    order: 'desc',
    limitRows: 100,
  });
  const page = queries.find(({ name }) => name === 'find-candidates' || name === 'find-runs') as Query;
  const lines = await clickhouse.query<{ explain: string }>({ ...page, sql: `EXPLAIN indexes = 1 ${page.sql}` });
  return [...new Set(lines.flatMap(({ explain }) => /Name: (by_\w+)/.exec(explain)?.[1] ?? []))];
}

it.each([
  ['eq(name, "one")', ['by_name']],
  ['and(in(name, ["one", "two"]), gt(latency, 5))', ['by_name']],
  ['has(tags, "beta")', ['by_tag']],
  ['and(eq(metadata_key, "user_id"), eq(metadata_value, "u1"))', ['by_metadata']],
  [
    'and(eq(is_root, true), and(in(metadata_key, ["a.b", "user_id"]), in(metadata_value, ["u1", "u2"])))',
    ['by_metadata'],
  ],
  ['eq(thread_id, "t1")', ['by_metadata']],
  // The values may be in different rows of a run, so the index is used for only one of them.
  ['and(eq(name, "one"), eq(tags, "beta"))', ['by_tag']],
  // An index cannot find the runs that match these conditions.
  ['neq(name, "one")', []],
  ['eq(name, "")', []],
  ['not(eq(name, "one"))', []],
  ['and(eq(metadata_key, "user_id"), neq(metadata_value, "u1"))', []],
  ['and(eq(metadata_key, "user_id"), eq(metadata_value, 1))', []],
])('%s reads the indexes %j', async (filter, indexes) => {
  expect(await findUsedIndexes(filter)).toEqual(indexes);
});

it('finds a run whose values are in different stored rows', async () => {
  const post = runEvent({ values: { name: 'split' } });
  const patch = runEvent({ kind: 'patch', runId: post.runId, values: { tags: json(['apart']) } });
  for (const event of [post, patch]) await insertEvents(stores.clickhouse, [event]);
  const found = await findPage(stores.clickhouse, {
    scope: { tenantId, projectIds: [projectId] },
    filter: { conditions: parseRunFilters({ filter: 'and(eq(name, "split"), has(tags, "apart"))' }) },
    order: 'desc',
    limitRows: 100,
  });
  expect(found.map((run) => run.runId)).toEqual([post.runId]);
});

it.each(['asc', 'desc'] as const)('finds few among thousands with the name, in pages, %s', async (order) => {
  const scope = { tenantId, projectIds: [randomUUID()] };
  const events = Array.from({ length: 3_500 }, (_, index) =>
    runEvent({
      projectId: scope.projectIds[0]!,
      startTimeMicros: noonMicros + index * 1_000_000,
      values: { name: 'many', ...(index % 500 === 300 && { error: json('boom') }) },
    }),
  );
  await insertEvents(stores.clickhouse, events);
  const filter = { conditions: parseRunFilters({ filter: 'and(eq(name, "many"), eq(status, "error"))' }) };
  const ids: string[] = [];
  let after: RunKey | undefined;
  do {
    const found = await findPage(stores.clickhouse, { scope, filter, order, limitRows: 2, after });
    ids.push(...found.slice(0, 2).map((key) => key.runId));
    after = found.length > 2 ? found[1] : undefined;
  } while (after);
  const failed = events.filter(({ values }) => values.error).map(({ runId }) => runId);
  expect(ids).toEqual(order === 'asc' ? failed : failed.reverse());
});

it('finds runs long before and after a slice without any', async () => {
  const scope = { tenantId, projectIds: [randomUUID()] };
  const make = (name: string, startTimeMicros: number) =>
    runEvent({ projectId: scope.projectIds[0]!, startTimeMicros, values: { name } });
  const hourMicros = 3_600_000_000;
  const hours = [-7_000, -961, -960, -49, -48, -1, 1, 30, 31, 900, 8_000];
  const sought = hours.map((hour) => make('far', noonMicros + hour * hourMicros));
  // More than the first slice has.
  const others = Array.from({ length: 33_000 }, (_, index) => make('other', noonMicros + index));
  await insertEvents(stores.clickhouse, [...sought, ...others]);
  const filter = { conditions: parseRunFilters({ filter: 'eq(name, "far")' }) };
  const findFrom = async (order: Order, middle: number) => {
    const after = { ...sought[middle]!, projectId: scope.projectIds[0]! };
    const request = { scope, filter, order, after };
    const [some, all] = await Promise.all(
      [2, 100].map((limitRows) => findPage(stores.clickhouse, { ...request, limitRows })),
    );
    const ids = all!.map(({ runId }) => runId);
    expect(some!.map(({ runId }) => runId)).toEqual(ids.slice(0, 3));
    return ids;
  };
  const ids = sought.map(({ runId }) => runId);
  expect(await findFrom('desc', 6)).toEqual(ids.slice(0, 6).reverse());
  expect(await findFrom('desc', 10)).toEqual(ids.slice(0, 10).reverse());
  expect(await findFrom('asc', 5)).toEqual(ids.slice(6));
  expect(await findFrom('asc', 0)).toEqual(ids.slice(1));
});

it('finds a number of metadata that is written with an exponent', async () => {
  const event = runEvent({ values: { extra: Buffer.from('{"metadata":{"n":1e2}}') } });
  await insertEvents(stores.clickhouse, [event]);
  const filter = 'and(eq(metadata_key, "n"), eq(metadata_value, "100"))';
  const found = await findPage(stores.clickhouse, {
    scope: { tenantId, projectIds: [projectId] },
    filter: { conditions: parseRunFilters({ filter }) },
    order: 'desc',
    limitRows: 100,
  });
  expect(found.map((run) => run.runId)).toEqual([event.runId]);
});

it('finds runs in more projects than a parameter lists', async () => {
  const conditions = parseRunFilters({ filter: 'eq(name, "one")', trace_filter: 'has(tags, "beta")' });
  const found = await findPage(stores.clickhouse, {
    scope: { tenantId, projectIds: [projectId, ...Array.from({ length: 1_000 }, () => randomUUID())] },
    filter: { conditions },
    order: 'desc',
    limitRows: 100,
  });
  expect(found).toHaveLength(1);
});
