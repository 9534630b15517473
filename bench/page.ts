/**
 * A page of runs: the 100 newest of a project of 2,000,000 runs of 1 KB, with and without a condition on status, over
 * HTTP, with the fields that the stock Python SDK selects.
 *
 * The runs are in the last thirty days, with those of four other projects, in batches as the sink would insert them:
 * each batch once as posts with inputs and once as patches with outputs, so that the newest are not merged. Two percent
 * failed.
 *
 * Measured in turns, so that both sides see the same conditions: the request as a client sends it (keep-alive, key,
 * projects from Postgres), and the plain query for the ids alone, `… FINAL … ORDER BY start_time DESC LIMIT 100`,
 * through the same ClickHouse client (`ratio`: how many times longer it takes than the whole page, the worse of both
 * conditions). Both must return the same runs. The query condition cache is off for both.
 */
import assert from 'node:assert/strict';
import { type BenchEngines, withEngines } from './engines.ts';
import { printFigures, quantile, round, timedMs } from './figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';
import { addProjects, servePages } from './run-load/serve-pages.ts';

const runs = Number(process.env.BENCH_RUNS ?? 2_000_000);
const runsOfOthers = runs / 20;
const otherProjects = 4;
const rowsPerInsert = 50_000;
const days = 30;
const rounds = Number(process.env.BENCH_ROUNDS ?? 15);
const requestsPerRound = 4;
const target = 1.5;
const p50TargetMs = 100;

await withEngines(async (engines) => {
  const { key, workspaceId, projectIds } = await addProjects(engines, 1 + otherProjects);
  const insertMs = await timedMs(() => insertAll(engines, workspaceId, projectIds));
  const { all, errors } = await measure(engines, key, workspaceId, projectIds[0] as string);
  printFigures({
    bench: 'page',
    ratio: round(Math.min(all.plainMs / all.httpMs, errors.plainMs / errors.httpMs)),
    target,
    higher_is_better: true,
    p50_ms: round(all.httpMs),
    p99_ms: round(all.httpP99Ms),
    errors_p50_ms: round(errors.httpMs),
    errors_p99_ms: round(errors.httpP99Ms),
    p50_target_ms: p50TargetMs,
    plain_ids_ms: round(all.plainMs),
    errors_plain_ids_ms: round(errors.plainMs),
    page_bytes: all.bytes,
    runs,
    runs_of_others: runsOfOthers * otherProjects,
    insert_seconds: round(insertMs / 1_000),
  });
});

async function insertAll(
  { clickhouse }: BenchEngines,
  workspaceId: string,
  projectIds: readonly string[],
): Promise<void> {
  const beginSeconds = Math.floor(Date.now() / 1_000) - days * 86_400;
  const inserts = Math.ceil(runs / rowsPerInsert);
  for (let insert = 0; insert < inserts; insert++) {
    for (const [index, project] of projectIds.entries()) {
      const total = index === 0 ? runs : runsOfOthers;
      const count = total / inserts;
      const load = {
        tenant: workspaceId,
        project,
        total,
        beginSeconds,
        spanSeconds: days * 86_400,
        bytes: 1_000,
      };
      await insertRuns(clickhouse, load, insert * count, count);
    }
  }
}

async function measure(engines: BenchEngines, key: string, workspaceId: string, projectId: string) {
  const { clickhouse } = engines;
  const pages = await servePages(engines, key);
  const side = async (error: boolean | undefined) => {
    const plain: number[] = [];
    const http: number[] = [];
    let bytes = 0;
    const sql = `SELECT id FROM runs FINAL WHERE tenant_id = {tenant:UUID} AND session_id = {project:UUID}
      ${error ? 'AND isNotNull(error)' : ''} ORDER BY start_time DESC LIMIT 100`;
    const params = { tenant: workspaceId, project: projectId };
    for (let done = -1; done < rounds; done++) {
      let expected: string[] = [];
      const plainMs = await timedMs(async () => {
        expected = (await clickhouse.query<{ id: string }>({ name: 'bench-plain', sql, params })).map((row) => row.id);
      });
      const httpMs: number[] = [];
      for (let sent = 0; sent < requestsPerRound; sent++) {
        let text = '';
        httpMs.push(
          await timedMs(async () => {
            text = await pages.ask(projectId, error);
          }),
        );
        bytes = Buffer.byteLength(text);
        const found = (JSON.parse(text) as { runs: { id: string }[] }).runs.map((run) => run.id);
        assert.equal(found.length, 100);
        assert.deepEqual(found, expected);
      }
      if (done < 0) continue; // Warm-up.
      plain.push(plainMs);
      http.push(...httpMs);
    }
    return { httpMs: quantile(http, 0.5), httpP99Ms: quantile(http, 0.99), plainMs: quantile(plain, 0.5), bytes };
  };
  const all = await side(undefined);
  const errors = await side(true);
  await pages.close();
  return { all, errors };
}
