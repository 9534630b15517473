/**
 * Slowdown of a quiet tenant while another tenant floods Runlake: p99 of its requests during the flood, over its p99
 * alone, for ingest, queries, graph runs and exports (`ratio`: the worst of the four).
 *
 * One `runlake all` on embedded engines. The quiet tenant sends requests sequentially, with pauses; its time alone is
 * measured first in the same execution. The flood, in a separate process (`fairness/flood.ts`), by kind:
 *
 *   runs     three times as many runs as there are slots, each of which sleeps for two seconds
 *   queries  64 at a time, each of which reads a whole project
 *   exports  exports of 31 days each, ten at a time
 *   ingest   batches of a megabyte over 16 connections, and unfinished bodies of 50 MB, as many as the memory for
 *            bodies holds
 *
 * Tenants are organisations; for runs they are two API keys, because an agent server belongs to one organisation. A
 * measurement ends after 200 samples or its time limit, so that the bench ends within six minutes; an unfinished sample
 * then counts with its time so far. If no request completes during a flood, the bench fails (`starved`). With fewer
 * than 100 samples p99 is the maximum. `GET /ok` is also timed: it needs only the CPU of the process, so it shows the
 * cost of a flood that no sharing can avoid. `BENCH_PARTS=ingest,queries` measures only these; `BENCH_RUNS` is the
 * number of runs of a project.
 */
import { fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { openClickHouse } from '../infra/clickhouse/client.ts';
import { openDatabase } from '../infra/postgres/pool.ts';
import { createLogger } from '../infra/telemetry/logger.ts';
import { addKey, addOrganization } from '../test/api/start-api.ts';
import { agentsAt, untilItAnswers } from './agents/agents-at.ts';
import type { Flood } from './fairness/flood.ts';
import { type Measured, measure, type Part } from './fairness/measure.ts';
import { addDestination, disconnect, exportDays, ingest, ok, query, run, type Tenant } from './fairness/requests.ts';
import { printFigures, quantile, round } from './figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';
import { atEnd, startBenchRunlake } from './started.ts';

const target = 3;
const runsOfProject = Number(process.env.BENCH_RUNS ?? 100_000);
const daySeconds = 86_400;
const days = 31;
/** First day of a project. */
const beginSeconds = Math.floor(Date.now() / 1_000 / daySeconds - days - 1) * daySeconds;
/** Time until slots are full and queues have formed. */
const floodLeadMs = 3_000;
/** Time for remaining work after the flood: merges of ClickHouse, cancelled runs. */
const settleMs = 3_000;

const root = mkdtempSync(join(tmpdir(), 'runlake-bench-fairness-'));
atEnd(() => rmSync(root, { recursive: true, force: true }));
const agents = await agentsAt();
const runlake = await startBenchRunlake({
  environment: { ...agents.environment, RUNLAKE_LOCAL_EXPORT_ROOT: root, RUNLAKE_EXPORTS_PER_WORKSPACE: '10' },
});
const at = { main: runlake.url, agents: agents.url };
const logger = createLogger('warn', 'bench');
const { clickhouseUrl, databaseUrl } = runlake.stores();
const clickhouse = openClickHouse({ url: clickhouseUrl, logger, timeoutMs: 600_000 });
const database = openDatabase({ url: databaseUrl, logger, timeoutMs: 60_000 });
atEnd(() => Promise.all([disconnect(), clickhouse.close(), database.close()]));
await untilItAnswers(agents.url);
const [quiet, noisy] = [await addTenant('quiet'), await addTenant('noisy')];
const [quietKey, noisyKey] = await addAgentKeys();
const all: Record<Flood['part'], Part> = {
  runs: { pauseMs: 20, maxSeconds: 25, quiet: (signal) => run(at, { ...quiet, key: quietKey }, 20, signal) },
  // With requests longer than the pauses it would use more than its share, and not be quiet.
  queries: { pauseMs: 300, maxSeconds: 35, quiet: (signal) => query(at, quiet, signal) },
  exports: {
    pauseMs: 20,
    maxSeconds: 35,
    quiet: (signal) => exportDays(at, quiet, { beginSeconds, days: 1 }, signal),
  },
  ingest: { pauseMs: 20, maxSeconds: 25, quiet: (signal) => ingest(at, quiet, { runs: 10, bytes: 1_000 }, signal) },
};
const chosen = process.env.BENCH_PARTS?.split(',') ?? Object.keys(all);
for (const name of chosen)
  if (!(name in all)) throw new Error(`BENCH_PARTS: ${name} is not one of ${Object.keys(all).join(', ')}`);
const figures: Record<string, number> = {};
const starved: string[] = [];
const rows: Record<string, object> = {};
for (const [name, part] of Object.entries(all) as [Flood['part'], Part][]) {
  if (!chosen.includes(name)) continue;
  const alone = await measure(part, () => ok(at));
  if (alone.completed === 0)
    throw new Error(`${name}: no request completed within ${part.maxSeconds} s, without a flood`);
  const stop = startFlood({
    ...{ part: name, at, beginSeconds },
    tenant: name === 'runs' ? { ...noisy, key: noisyKey } : noisy,
  });
  await pause(floodLeadMs);
  const beside = await measure(part, () => ok(at));
  await stop();
  if (beside.completed === 0) starved.push(name);
  const [aloneP99, besideP99] = [quantile(alone.taken, 0.99), quantile(beside.taken, 0.99)];
  figures[`${name}_ratio`] = round(besideP99 / aloneP99);
  figures[`${name}_alone_p99_ms`] = round(aloneP99);
  figures[`${name}_beside_p99_ms`] = round(besideP99);
  figures[`${name}_samples`] = Math.min(alone.completed, beside.completed);
  rows[name] = { ratio: figures[`${name}_ratio`], ...shown('alone', alone), ...shown('beside', beside) };
  await pause(settleMs);
}
console.log('Milliseconds, by part:');
console.table(rows);
const ratio = Math.max(...chosen.map((name) => figures[`${name}_ratio`] as number));
printFigures({ bench: 'fairness', ratio, target, higher_is_better: false, starved, ...figures });
if (starved.length > 0)
  throw new Error(`no request of the quiet tenant completed during the flood: ${starved.join(', ')}`);

function shown(what: string, { taken, completed, ok }: Measured): Record<string, number> {
  const p50 = round(quantile(taken, 0.5), 0);
  const p99 = round(quantile(taken, 0.99), 0);
  const okP99 = round(quantile(ok, 0.99), 0);
  return { [`${what} p50`]: p50, [`${what} p99`]: p99, [`${what} n`]: completed, [`${what} /ok p99`]: okP99 };
}

/** Starts a flood. @returns a function that ends it. */
function startFlood(flood: Flood): () => Promise<void> {
  const child = fork(fileURLToPath(new URL('fairness/flood.ts', import.meta.url)), [JSON.stringify(flood)]);
  const ended = once(child, 'exit');
  return async () => {
    if (child.exitCode !== null) throw new Error(`the flood of ${flood.part} exited unexpectedly`);
    child.disconnect();
    const late = setTimeout(() => child.kill('SIGKILL'), 5_000);
    await ended;
    clearTimeout(late);
  };
}

/** Creates an organisation with a project of `runsOfProject` runs over all days, and a destination. */
async function addTenant(name: string): Promise<Tenant> {
  const { adminKey: key, workspaceIds } = await addOrganization(database, name);
  const [workspaceId] = workspaceIds;
  const projectId = randomUUID();
  const project = [projectId, workspaceId, 'bench'];
  await database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', project);
  const spanSeconds = days * daySeconds;
  const load = { tenant: workspaceId, project: projectId, total: runsOfProject, beginSeconds, spanSeconds, bytes: 300 };
  const batch = Math.min(50_000, runsOfProject);
  for (let first = 0; first < runsOfProject; first += batch) await insertRuns(clickhouse, load, first, batch);
  const tenant = { key, workspaceId, projectId };
  return { ...tenant, destinationId: await addDestination(at, tenant) };
}

/** Creates two keys of the organisation of the agent server. */
async function addAgentKeys(): Promise<readonly [string, string]> {
  const [owner] = await database.query<{ organization_id: string; user_id: string }>(
    'SELECT organization_id, user_id FROM api_keys ORDER BY created_at LIMIT 1',
  );
  const { organization_id: organizationId, user_id: userId } = owner as NonNullable<typeof owner>;
  const add = () => addKey({ database, organizationId, userId });
  return [await add(), await add()];
}
