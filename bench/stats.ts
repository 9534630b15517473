/**
 * Statistics of the runs of a month: one project with 2,000,000 runs of 1 KB, over HTTP.
 *
 * Runs are inserted as in `query.ts`, in traces of five, of which a quarter of the children are model calls with tokens and
 * costs; 1 % have feedback. The facts of all hours are listed, and the newest hour is dirty again, as it is where runs
 * arrive. The bench waits until ClickHouse has no merge to do. Each request is compared with queries that
 * are written by hand for the same answer and know the data: that no model call is inside another (`ratio`: their time
 * divided by that of the request, the worst of all). The query condition cache is off for both.
 */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { costExpressions, selectColumn } from '../pipelines/costs/cost-sql.ts';
import { runFactRollUp } from '../pipelines/runs/stats/count-facts.ts';
import { markHoursDirty } from '../pipelines/usage/mark-hours-dirty.ts';
import { type BenchEngines, withEngines } from './engines.ts';
import { printFigures, quantile, round, timedMs } from './figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';
import { addProjects, type PageServer, servePages } from './run-load/serve-pages.ts';

const runs = Number(process.env.BENCH_RUNS ?? 2_000_000);
const rowsPerInsert = 100_000;
const days = 30;
const rounds = Number(process.env.BENCH_ROUNDS ?? 5);
const target = 0.5;
const targetMs = 300;

const project = 'tenant_id = {tenant:UUID} AND session_id = {project:UUID}';
const live = 'isNull(deleted_at) AND expires_at > now()';
const latency = 'toUnixTimestamp64Micro(ended_at) - toUnixTimestamp64Micro(started_at)';
const firstToken = `if(run_type = 'llm', toUnixTimestamp64Micro(first_token_time) - toUnixTimestamp64Micro(started_at), NULL)`;
const percentiles = (sql: string) => `quantilesExactInclusive(0.5, 0.99)(${sql})`;
const counts = (
  more = '',
) => `SELECT count() AS run_count, ${percentiles(latency)}, avg(${latency}), ${percentiles(firstToken)},
    avg(isNotNull(error)), avg(isNotNull(${firstToken})), max(started_at) ${more}
  FROM runs FINAL PREWHERE ${project} WHERE ${live}`;
const costs = ['prompt_cost', 'completion_cost', 'total_cost'];
const cost = (name: string) => `sum(toDecimal128OrNull(${name}, 20))`;
const figures = `SELECT sum(p) AS prompt_tokens, ${percentiles('p')}, sum(c), ${percentiles('c')}, sum(t) AS total_tokens, ${percentiles('t')},
    sum(d), sum(e), sum(f), ${percentiles('toFloat64(f)')}
  FROM (SELECT trace_id, sum(prompt_tokens) AS p, sum(completion_tokens) AS c, sum(total_tokens) AS t, ${cost('prompt_cost')} AS d,
      ${cost('completion_cost')} AS e, ${cost('total_cost')} AS f
    FROM (WITH ${costExpressions}
      SELECT trace_id, prompt_tokens, completion_tokens, total_tokens, ${costs.map(selectColumn).join(', ')}
      FROM runs FINAL PREWHERE ${project} WHERE ${live} AND run_type IN ('llm', 'embedding')) GROUP BY trace_id)`;
const feedback = `SELECT key, count(), avg(toFloat64(score)), min(toFloat64(score)), max(toFloat64(score)), stddevPop(toFloat64(score))
  FROM feedback FINAL WHERE tenant_id = {tenant:UUID} AND ${live}
    AND run_id IN (SELECT id FROM runs FINAL PREWHERE ${project} AND id IN (SELECT run_id FROM feedback WHERE tenant_id = {tenant:UUID}) WHERE ${live})
  GROUP BY key`;
const facets = ['name', 'run_type'].map((name) => `, topK(10, 100, 'counts')(${name})`).join('');

interface Case {
  readonly name: string;
  readonly body: object;
  readonly sql: readonly string[];
}

const latencies = ['run_count', 'latency_p50', 'latency_p99', 'error_rate'];
const cases: readonly Case[] = [
  { name: 'all', body: {}, sql: [counts(facets), figures, feedback] },
  { name: 'latency', body: { select: latencies }, sql: [counts()] },
  { name: 'tokens', body: { select: ['run_count', 'all_token_stats'] }, sql: [counts(), figures] },
  {
    name: 'by_name',
    body: { select: latencies, group_by: { attribute: 'name' } },
    sql: [`${counts(', name')} GROUP BY name ORDER BY run_count DESC LIMIT 5`],
  },
];

await withEngines(async (engines) => {
  const { key, workspaceId, projectIds } = await addProjects(engines, 1);
  const [projectId = ''] = projectIds;
  const insertMs = await timedMs(() => insertAll(engines, workspaceId, projectId));
  const listMs = await timedMs(() => runFactRollUp(engines, { minAgeSeconds: 0, hours: days * 24 + 2 }));
  const hourSeconds = Math.floor(Date.now() / 3_600_000) * 3_600;
  await markHoursDirty(engines.database, [
    { tenantId: workspaceId, hourSeconds },
    { tenantId: workspaceId, hourSeconds: hourSeconds - 3_600 },
  ]);
  await waitForMerges(engines);
  const pages = await servePages(engines, key);
  const results: Record<string, number> = {};
  let ratio = Number.POSITIVE_INFINITY;
  for (const each of cases) {
    const { httpMs, plainMs } = await measure(engines, pages, { tenant: workspaceId, project: projectId }, each);
    results[`${each.name}_p50_ms`] = round(httpMs);
    results[`${each.name}_plain_ms`] = round(plainMs);
    ratio = Math.min(ratio, plainMs / httpMs);
  }
  const parts = await engines.clickhouse.query<{ parts: number }>({
    name: 'bench-parts',
    sql: `SELECT count() AS parts FROM system.parts WHERE table = 'runs' AND active`,
  });
  await pages.close();
  const result = {
    bench: 'stats',
    ratio: round(ratio),
    target,
    higher_is_better: true,
    target_ms: targetMs,
    ...results,
  };
  printFigures({
    ...result,
    runs,
    parts: parts[0]?.parts,
    insert_seconds: round(insertMs / 1_000),
    list_seconds: round(listMs / 1_000),
  });
});

async function insertAll({ clickhouse }: BenchEngines, tenant: string, project: string): Promise<void> {
  const spanSeconds = days * 86_400;
  const beginSeconds = Math.floor(Date.now() / 1_000) - spanSeconds;
  const load = { tenant, project, total: runs, beginSeconds, spanSeconds, bytes: 1_000, usage: true };
  for (let first = 0; first < runs; first += rowsPerInsert)
    await insertRuns(clickhouse, load, first, Math.min(rowsPerInsert, runs - first));
  await clickhouse.command({
    name: 'bench-insert',
    sql: `INSERT INTO feedback (version, tenant_id, run_id, id, received_at, key, score, source_type, user_id, created_at, modified_at)
      SELECT 1, tenant_id, id, generateUUIDv4(), start_time, 'quality', toString((cityHash64(id, 1) % 100) / 100), 'api', id, start_time, start_time
      FROM runs WHERE cityHash64(id) % 1000 < 10 AND isNotNull(name)`,
  });
}

async function waitForMerges({ clickhouse }: BenchEngines): Promise<void> {
  for (let idle = 0; idle < 3; ) {
    const [row] = await clickhouse.query<{ merges: number }>({
      name: 'bench-merges',
      sql: 'SELECT count() AS merges FROM system.merges',
    });
    idle = row?.merges === 0 ? idle + 1 : 0;
    await sleep(1_000);
  }
}

async function measure(
  { clickhouse }: BenchEngines,
  pages: PageServer,
  params: { tenant: string; project: string },
  { body, sql }: Case,
) {
  const plain: number[] = [];
  const http: number[] = [];
  for (let done = -1; done < rounds; done++) {
    const expected: Record<string, unknown> = {};
    const plainMs = await timedMs(async () => {
      for (const each of sql) {
        const rows = await clickhouse.query<Record<string, unknown>>({ name: 'bench-plain', sql: each, params });
        Object.assign(expected, rows[0]);
      }
    });
    let text = '';
    const httpMs = await timedMs(async () => {
      text = await pages.stats({ session: [params.project], ...body });
    });
    const response = JSON.parse(text) as Record<string, unknown>;
    const stats = 'run_count' in response ? response : (response[String(expected.name)] as Record<string, unknown>);
    assert.ok(Number(expected.run_count) > 0);
    assert.equal(stats.run_count, expected.run_count);
    for (const name of ['total_tokens', 'prompt_tokens']) if (name in stats) assert.equal(stats[name], expected[name]);
    if (done < 0) continue; // Warm-up.
    plain.push(plainMs);
    http.push(httpMs);
  }
  return { httpMs: quantile(http, 0.5), plainMs: quantile(plain, 0.5) };
}
