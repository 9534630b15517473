import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { parseFilter } from '../../../../pipelines/runs/filter/parse-filter.ts';
import { parseRunFilters } from '../../../../pipelines/runs/filter/run-filter.ts';
import { findPage } from '../../../../pipelines/runs/find-page.ts';
import type { RunKey } from '../../../../pipelines/runs/run-columns.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { Random } from '../../../histories/random.ts';
import { isFullExtent } from '../../../house/extent.ts';
import { seed } from '../../../house/seed.ts';
import { type ModelRun, matches, type Tree } from './expected-runs.ts';
import { storeFilterTenant } from './filter-tenant.ts';
import { drawTree, printTree } from './random-filter.ts';

const treeCount = Number(process.env.FILTER_TREES ?? (isFullExtent ? 10_000 : 60));
/** ClickHouse uses about one core for a request. */
const concurrentRequests = 4;
const tenantId = randomUUID();
const projectIds = [randomUUID(), randomUUID()];

const stores = forSuite(() => freshStores());
const traces = new Map<string, ModelRun[]>();
const tenant = forSuite(() => storeFilterTenant(stores.clickhouse, { tenantId, projectIds }, seed, 2_000));
beforeAll(async () => {
  for (const run of tenant.runs) traces.set(run.traceId, [...(traces.get(run.traceId) ?? []), run]);
  // Similar runs with other ids, in another workspace and in another project of this workspace.
  await storeFilterTenant(stores.clickhouse, { tenantId: randomUUID(), projectIds }, seed, 300);
  await storeFilterTenant(stores.clickhouse, { tenantId, projectIds: [randomUUID()] }, seed, 300);
}, 120_000);

/** Returns a parsed expression without positions. */
function withoutPositions(parsed: unknown): unknown {
  if (Array.isArray(parsed)) return parsed.map(withoutPositions);
  if (typeof parsed !== 'object' || parsed === null) return parsed;
  const { at: _at, ...rest } = parsed as Record<string, unknown>;
  if (Object.keys(rest).length === 1 && 'value' in rest) return withoutPositions(rest.value);
  if (Object.keys(rest).length === 1 && 'name' in rest) return rest.name;
  return Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, withoutPositions(value)]));
}

/** Returns the ids of the runs on all pages. */
async function select(filters: Parameters<typeof parseRunFilters>[0], limitRows: number): Promise<string[]> {
  const conditions = parseRunFilters(filters);
  const ids: string[] = [];
  for (let after: RunKey | undefined; ; ) {
    const scope = { tenantId, projectIds };
    const found = await findPage(stores.clickhouse, { scope, filter: { conditions }, order: 'desc', limitRows, after });
    const page = found.slice(0, limitRows);
    ids.push(...page.map((key) => key.runId));
    if (found.length <= limitRows) return ids.sort();
    after = page.at(-1);
  }
}

function expectRuns(filters: { filter?: Tree; trace?: Tree; tree?: Tree }): string[] {
  const inTrace = (run: ModelRun) => traces.get(run.traceId) ?? [];
  return tenant.runs
    .filter((run) => filters.filter === undefined || matches(run, filters.filter))
    .filter(
      (run) => filters.trace === undefined || inTrace(run).some((each) => each.isRoot && matches(each, filters.trace!)),
    )
    .filter((run) => filters.tree === undefined || inTrace(run).some((each) => matches(each, filters.tree!)))
    .map((run) => run.id)
    .sort();
}

type Place = 'filter' | 'trace' | 'tree';
const parameters = { filter: 'filter', trace: 'trace_filter', tree: 'tree_filter' } as const;
/** Where the expressions of a request are: on the run, on the root of its trace, on any run of its trace. */
const alone: readonly (readonly Place[])[] = [['filter'], ['filter'], ['filter'], ['trace'], ['tree']];
const combined: readonly (readonly Place[])[] = [
  ['filter', 'trace'],
  ['filter', 'tree'],
  ['trace', 'tree'],
  ['filter', 'trace', 'tree'],
];

/** Draws the expressions of a request, and compares its runs with those of the model. Returns the share of runs found. */
async function checkRequest(at: number): Promise<{ readonly isSingle: boolean; readonly share: number }> {
  const random = new Random(seed + at);
  const places = random.pick(random.chance(0.25) ? combined : alone);
  const drawn = places.map((place) => {
    const tree = drawTree(random, tenant.pools, places.length > 1 ? 2 : 3);
    return { place, tree, text: printTree(random, tree) };
  });
  const filters = Object.fromEntries(drawn.map(({ place, text }) => [parameters[place], text]));
  const context = `RUNLAKE_TEST_SEED=${seed}, tree ${at}: ${JSON.stringify(filters)}`;
  for (const { tree, text } of drawn) {
    expect(withoutPositions(parseFilter(text)), context).toEqual(JSON.parse(JSON.stringify(tree)));
  }
  const ids = await select(filters, random.pick([10_000, 10_000, 700])).catch((error) => {
    throw new Error(`${context}: ${error}`, { cause: error });
  });
  const wanted = expectRuns(Object.fromEntries(drawn.map(({ place, tree }) => [place, tree])));
  if (ids.join() !== wanted.join()) {
    const difference = ids.filter((id) => !wanted.includes(id)).concat(wanted.filter((id) => !ids.includes(id)))[0];
    expect.fail(`${context}: ${ids.length} runs instead of ${wanted.length}, first difference:
      ${JSON.stringify(tenant.runs.find(({ id }) => id === difference))}`);
  }
  return { isSingle: places.length === 1, share: ids.length / tenant.runs.length };
}

it(`${treeCount} random expressions parse to their trees and find the runs that they describe`, {
  timeout: 60_000 + treeCount * 2_000,
}, async () => {
  let next = 0;
  let found = 0;
  let single = 0;
  const checkInTurn = async () => {
    while (next < treeCount) {
      const { isSingle, share } = await checkRequest(next++);
      if (!isSingle) continue;
      single += 1;
      found += share > 0 && share < 1 ? 1 : 0;
    }
  };
  await Promise.all(Array.from({ length: concurrentRequests }, checkInTurn));
  // Most single expressions must match some runs and not others; otherwise they would prove little.
  expect(found / single).toBeGreaterThan(0.5);
});
