/**
 * Run queries with filters: the 100 newest runs that match, among 2,000,000 runs of 1 KB in 20 projects, over HTTP.
 *
 * The runs are in the last thirty days, in batches as the sink would insert them: each batch once as posts and once as
 * patches, so that the newest are not merged. Each condition is compared with a query written by hand that finds the
 * ids of the same runs (`ratio`: the time of that query divided by the time of the whole page, the worst of all
 * conditions). Both must return the same runs. The query condition cache is off for both.
 */
import assert from 'node:assert/strict';
import { type BenchEngines, withEngines } from './engines.ts';
import { printFigures, quantile, round, timedMs } from './figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';
import { addProjects, type PageServer, servePages } from './run-load/serve-pages.ts';

const runs = Number(process.env.BENCH_RUNS ?? 2_000_000);
const projects = 20;
const rowsPerInsert = 100_000;
const days = 30;
const rounds = Number(process.env.BENCH_ROUNDS ?? 5);
const target = 0.5;

const values = {
  name: `multiIf(cityHash64(run) % 100000 = 7, 'rare', cityHash64(run) % 100 = 8, 'common', 'step')`,
  tags: `if(cityHash64(run) % 1000 = 9, '["beta","nightly"]', '["prod"]')`,
  metadata: `concat('"user_id":"u', toString(cityHash64(run) % 20000), '",')`,
  word: `if(cityHash64(run) % 50000 = 11, 'Xylophone ', '')`,
};

interface Case {
  readonly name: string;
  readonly filters: object;
  /** Condition of the query that is written by hand, on `runs FINAL`. */
  readonly sql: string;
  readonly limitMs: number;
}

const userPair = `JSONExtractString(extra, 'metadata', 'user_id') = 'u77'`;
const cases: readonly Case[] = [
  { name: 'a_common', filters: { filter: 'eq(name, "common")' }, sql: `name = 'common'`, limitMs: 100 },
  { name: 'a_rare', filters: { filter: 'eq(name, "rare")' }, sql: `name = 'rare'`, limitMs: 100 },
  {
    name: 'b_metadata',
    filters: { filter: 'and(eq(metadata_key, "user_id"), eq(metadata_value, "u77"))' },
    sql: userPair,
    limitMs: 100,
  },
  {
    name: 'c_tag',
    filters: { filter: 'has(tags, "beta")' },
    sql: `has(JSONExtract(ifNull(tags, ''), 'Array(String)'), 'beta')`,
    limitMs: 100,
  },
  {
    name: 'd_score',
    filters: { filter: 'and(eq(feedback_key, "quality"), gt(feedback_score, 0.9))' },
    sql: `id IN (SELECT run_id FROM feedback FINAL WHERE tenant_id = {tenant:UUID} AND key = 'quality' AND toFloat64(score) > 0.9)`,
    limitMs: 100,
  },
  {
    name: 'e_search',
    filters: { filter: 'search("xylophone")' },
    sql: `(positionCaseInsensitive(inputs, 'xylophone') > 0 OR positionCaseInsensitive(outputs, 'xylophone') > 0)`,
    limitMs: 300,
  },
  {
    name: 'f_tree',
    filters: { tree_filter: 'eq(name, "rare")' },
    sql: `trace_id IN (SELECT trace_id FROM runs FINAL WHERE tenant_id = {tenant:UUID} AND name = 'rare')`,
    limitMs: 300,
  },
];
const wanted = process.env.BENCH_CASES?.split(',');

await withEngines(async (engines) => {
  const { key, workspaceId, projectIds } = await addProjects(engines, projects);
  const insertMs = await timedMs(() => insertAll(engines, workspaceId, projectIds));
  const pages = await servePages(engines, key);
  const figures: Record<string, number> = {};
  let ratio = Number.POSITIVE_INFINITY;
  for (const each of cases.filter(({ name }) => wanted === undefined || wanted.includes(name))) {
    const { httpMs, plainMs } = await measure(engines, pages, workspaceId, each);
    figures[`${each.name}_p50_ms`] = round(httpMs);
    figures[`${each.name}_plain_ms`] = round(plainMs);
    figures[`${each.name}_target_ms`] = each.limitMs;
    ratio = Math.min(ratio, plainMs / httpMs);
    if (process.env.BENCH_VERBOSE) console.error(each.name, round(httpMs), round(plainMs));
  }
  await pages.close();
  const result = { bench: 'query', ratio: round(ratio), target, higher_is_better: true, ...figures };
  printFigures({ ...result, runs, projects, insert_seconds: round(insertMs / 1_000) });
});

async function insertAll({ clickhouse }: BenchEngines, tenant: string, projectIds: readonly string[]): Promise<void> {
  const spanSeconds = days * 86_400;
  const beginSeconds = Math.floor(Date.now() / 1_000) - spanSeconds;
  const total = runs / projects;
  const count = Math.min(rowsPerInsert, runs) / projects;
  for (let first = 0; first < total; first += count) {
    for (const [index, project] of projectIds.entries()) {
      // No two runs start at the same time, so that the order is unique.
      await insertRuns(
        clickhouse,
        { tenant, project, total, beginSeconds: beginSeconds + index, spanSeconds, bytes: 1_000, values },
        first,
        count,
      );
    }
  }
  await clickhouse.command({
    name: 'bench-insert',
    sql: `INSERT INTO feedback (version, tenant_id, run_id, id, received_at, key, score, source_type, user_id, created_at, modified_at)
      SELECT 1, tenant_id, id, generateUUIDv4(), start_time, 'quality', toString((cityHash64(id, 1) % 100) / 100), 'api', id, start_time, start_time
      FROM runs WHERE cityHash64(id) % 1000 < 10 AND isNotNull(name)`,
  });
}

async function measure({ clickhouse }: BenchEngines, pages: PageServer, tenant: string, { filters, sql }: Case) {
  const plain: number[] = [];
  const http: number[] = [];
  for (let done = -1; done < rounds; done++) {
    let expected: string[] = [];
    let text = '';
    const plainMs = await timedMs(async () => {
      const found = await clickhouse.query<{ id: string }>({
        name: 'bench-plain',
        sql: `SELECT id FROM runs FINAL WHERE tenant_id = {tenant:UUID} AND ${sql} ORDER BY start_time DESC LIMIT 100`,
        params: { tenant },
      });
      expected = found.map(({ id }) => id);
    });
    const httpMs = await timedMs(async () => {
      text = await pages.query(filters);
    });
    const ids = (JSON.parse(text) as { runs: { id: string }[] }).runs.map(({ id }) => id);
    assert.ok(ids.length > 0, `no run matches ${sql}`);
    assert.deepEqual([...ids].sort(), [...expected].sort());
    if (done < 0) continue; // Warm-up.
    plain.push(plainMs);
    http.push(httpMs);
  }
  return { httpMs: quantile(http, 0.5), plainMs: quantile(plain, 0.5) };
}
