/**
 * How much slower a quiet tenant is beside one that floods Runlake: p99 of what it sends beside the flood, over its p99 alone, for ingest,
 * queries, runs of graphs and exports (`ratio`: the worst of the four).
 *
 * One `runlake all` on embedded engines. The quiet tenant sends one request after another, with pauses. The flood, by kind:
 *
 *   ingest   batches of a megabyte over 16 connections, and bodies of 50 MB whose end is withheld, as many as the memory for bodies holds
 *   queries  64 at a time, each of which reads a whole project
 *   runs     three times as many runs as there are slots, each of which sleeps for two seconds
 *   exports  exports of 31 days each, ten at a time
 *
 * Tenants are organisations; for runs they are two workspaces of the one organisation that an agent server belongs to.
 * `BENCH_PARTS=ingest,queries` measures only these; `BENCH_RUNS` is the number of runs of a project.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Agent, fetch } from 'undici';
import { openWarehouse } from '../infra/clickhouse/client.ts';
import { openDatabase } from '../infra/postgres/pool.ts';
import { createLogger } from '../infra/telemetry/logger.ts';
import { addOrganization } from '../test/api/start-api.ts';
import { startRunlake } from '../test/runlake-process.ts';
import { agentsAt, untilItAnswers } from './agents/agents-at.ts';
import { quantile, round } from './figures.ts';
import { insertRuns } from './run-load/insert-runs.ts';

const target = 3;
const runsOfProject = Number(process.env.BENCH_RUNS ?? 500_000);
const parts = (process.env.BENCH_PARTS ?? 'ingest,queries,runs,exports').split(',');
const daySeconds = 86_400;
const days = 31;

interface Tenant {
  readonly key: string;
  readonly workspaceId: string;
  readonly projectId: string;
  readonly dispatcher: Agent;
}

/** What the quiet tenant does once, and what the flood does until its signal is aborted. */
interface Part {
  readonly samples: number;
  readonly pauseMs: number;
  quiet(): Promise<void>;
  flood(signal: AbortSignal): Promise<void>;
}

const root = mkdtempSync(join(tmpdir(), 'runlake-bench-fairness-'));
const agents = await agentsAt();
const runlake = await startRunlake({
  environment: { ...agents.environment, RUNLAKE_LOCAL_EXPORT_ROOT: root, RUNLAKE_EXPORTS_PER_WORKSPACE: '10' },
});
const logger = createLogger('warn', 'bench');
const { clickhouseUrl, databaseUrl } = runlake.stores();
const warehouse = openWarehouse({ url: clickhouseUrl, logger, timeoutMs: 600_000 });
const database = openDatabase({ url: databaseUrl, logger, timeoutMs: 60_000 });
const tenants: Tenant[] = [];
try {
  await untilItAnswers(agents.url);
  const quiet = await addTenant('quiet');
  const noisy = await addTenant('noisy');
  const all: Record<string, () => Promise<Part>> = {
    ingest: async () => ingest(quiet, noisy),
    queries: async () => queries(quiet, noisy),
    runs: async () => graphRuns(quiet, noisy),
    exports: async () => exports(quiet, noisy),
  };
  const figures: Record<string, number> = {};
  const ratios: number[] = [];
  for (const name of parts) {
    const part = await (all[name] as () => Promise<Part>)();
    const alone = await measure(part);
    const over = new AbortController();
    const flood = part.flood(over.signal);
    await pause(2_000);
    const beside = await measure(part);
    over.abort();
    await flood;
    ratios.push(quantile(beside, 0.99) / quantile(alone, 0.99));
    figures[`${name}_ratio`] = round(ratios.at(-1) as number);
    figures[`${name}_alone_p99_ms`] = round(quantile(alone, 0.99));
    figures[`${name}_beside_p99_ms`] = round(quantile(beside, 0.99));
    figures[`${name}_beside_p50_ms`] = round(quantile(beside, 0.5));
    console.log(
      `${name}: ${figures[`${name}_ratio`]} (${figures[`${name}_alone_p99_ms`]} → ${figures[`${name}_beside_p99_ms`]} ms)`,
    );
  }
  const ratio = round(Math.max(...ratios));
  console.log(JSON.stringify({ bench: 'fairness', ratio, target, higher_is_better: false, ...figures }));
} finally {
  for (const { dispatcher } of tenants) await dispatcher.destroy();
  await warehouse.close();
  await database.close();
  await runlake.remove();
  rmSync(root, { recursive: true, force: true });
}

async function measure({ samples, pauseMs, quiet }: Part): Promise<number[]> {
  await quiet();
  const taken: number[] = [];
  for (let sample = 0; sample < samples; sample += 1) {
    const beganMs = performance.now();
    await quiet();
    taken.push(performance.now() - beganMs);
    await pause(pauseMs);
  }
  return taken;
}

async function addTenant(name: string): Promise<Tenant> {
  const { adminKey: key, workspaceIds } = await addOrganization(database, name);
  const [workspaceId] = workspaceIds;
  const dispatcher = new Agent({ connections: 128, headersTimeout: 0, bodyTimeout: 0 });
  const tenant = { key, workspaceId, projectId: randomUUID(), dispatcher };
  await database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
    tenant.projectId,
    workspaceId,
    'bench',
  ]);
  tenants.push(tenant);
  return tenant;
}

/** Sends until it is taken: what is refused for now counts as the time until it passed. */
async function send<Answer>(
  { key, dispatcher }: Tenant,
  url: string,
  body?: object,
  signal?: AbortSignal,
): Promise<Answer> {
  for (;;) {
    const answer = await fetch(url, {
      headers: { 'x-api-key': key, 'content-type': 'application/json' },
      ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
      ...(signal && { signal }),
      dispatcher,
    });
    const text = await answer.text();
    if (answer.ok) return JSON.parse(text) as Answer;
    assert.ok(answer.status === 503 || answer.status === 429, `${url}: ${answer.status} ${text}`);
    await pause(1_000 * Number(answer.headers.get('retry-after') ?? 1), undefined, signal && { signal });
  }
}

/** Does `work` again and again, so many at once, until `signal` is aborted. */
async function again(count: number, signal: AbortSignal, work: () => Promise<unknown>): Promise<void> {
  const one = async () => {
    while (!signal.aborted) {
      await work().catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    }
  };
  await Promise.all(Array.from({ length: count }, one));
}

function batchOf(count: number, bytes: number): object {
  const now = new Date().toISOString();
  const stamp = now.replace(/[-:.]/g, '').replace('Z', '000Z');
  const post = Array.from({ length: count }, () => {
    const id = randomUUID();
    const inputs = { text: 'x'.repeat(bytes) };
    return {
      id,
      trace_id: id,
      dotted_order: `${stamp}${id}`,
      name: 'bench',
      run_type: 'chain',
      start_time: now,
      inputs,
    };
  });
  return { post, patch: [] };
}

function ingest(quiet: Tenant, noisy: Tenant): Part {
  const url = `${runlake.url}/runs/batch`;
  return {
    samples: 40,
    pauseMs: 50,
    quiet: () => send(quiet, url, batchOf(10, 1_000)),
    flood: async (signal) => {
      const sockets = new Set<Socket>();
      const withhold = async () => {
        const socket = connect({ host: '127.0.0.1', port: Number(new URL(runlake.url).port) });
        sockets.add(socket);
        socket.on('error', () => undefined);
        socket.write(
          `POST /runs/batch HTTP/1.1\r\nHost: bench\r\nx-api-key: ${noisy.key}\r\nContent-Length: 50000000\r\n\r\n`,
        );
        socket.write(Buffer.alloc(49_999_999, 0x20));
        await new Promise<void>((resolve) => {
          socket.once('data', () => resolve()).once('close', () => resolve());
          signal.addEventListener('abort', () => socket.destroy(), { once: true });
        });
        socket.destroy();
        sockets.delete(socket);
        await pause(500);
      };
      await Promise.all([
        again(16, signal, () => send(noisy, url, batchOf(10, 100_000), signal)),
        again(11, signal, withhold),
      ]);
    },
  };
}

async function queries(quiet: Tenant, noisy: Tenant): Promise<Part> {
  const beginSeconds = Math.floor(Date.now() / 1_000) - 30 * daySeconds;
  for (const { workspaceId: tenant, projectId: project } of [quiet, noisy]) {
    const load = { tenant, project, total: runsOfProject, beginSeconds, spanSeconds: 29 * daySeconds, bytes: 300 };
    const piece = Math.min(50_000, runsOfProject);
    for (let first = 0; first < runsOfProject; first += piece) await insertRuns(warehouse, load, first, piece);
  }
  // No run has this parent, so that every run of the project is looked at.
  const ask = (tenant: Tenant, signal?: AbortSignal) =>
    send(
      tenant,
      `${runlake.url}/runs/query`,
      { session: [tenant.projectId], parent_run: randomUUID(), select: ['id'], limit: 100 },
      signal,
    );
  return {
    samples: 20,
    pauseMs: 1_000,
    quiet: async () => void (await ask(quiet)),
    flood: (signal) => again(64, signal, () => ask(noisy, signal)),
  };
}

async function graphRuns(_quiet: Tenant, _noisy: Tenant): Promise<Part> {
  const { apiKey: key } = runlake;
  const dispatcher = new Agent({ connections: 256, headersTimeout: 0, bodyTimeout: 0 });
  const operator: Tenant = { key, dispatcher, workspaceId: '', projectId: '' };
  tenants.push(operator);
  const { key: other } = await send<{ key: string }>(operator, `${runlake.url}/api/v1/api-key`, {
    description: 'quiet',
  });
  const wait = (tenant: Tenant, ms: number, signal?: AbortSignal) =>
    send(tenant, `${agents.url}/runs/wait`, { assistant_id: 'sleep', input: { ms } }, signal);
  return {
    samples: 20,
    pauseMs: 200,
    quiet: async () => void (await wait({ ...operator, key: other }, 100)),
    flood: (signal) => again(96, signal, () => wait(operator, 2_000, signal)),
  };
}

async function exports(quiet: Tenant, noisy: Tenant): Promise<Part> {
  const beginSeconds = Math.floor(Date.now() / 1_000 / daySeconds - days - 1) * daySeconds;
  const open = async (tenant: Tenant) => {
    const { workspaceId, projectId } = tenant;
    const total = 200 * days;
    const load = {
      tenant: workspaceId,
      project: projectId,
      total,
      beginSeconds,
      spanSeconds: days * daySeconds,
      bytes: 500,
    };
    await insertRuns(warehouse, load, 0, total);
    const { id } = await send<{ id: string }>(tenant, `${runlake.url}/api/v1/bulk-exports/destinations`, {
      destination_type: 'local',
      display_name: 'bench',
      config: { prefix: tenant.workspaceId },
    });
    return async (count: number, signal?: AbortSignal) => {
      const { id: made } = await send<{ id: string }>(
        tenant,
        `${runlake.url}/api/v1/bulk-exports`,
        {
          bulk_export_destination_id: id,
          session_id: projectId,
          start_time: new Date(beginSeconds * 1_000).toISOString(),
          end_time: new Date((beginSeconds + count * daySeconds) * 1_000).toISOString(),
        },
        signal,
      );
      for (;;) {
        const { status } = await send<{ status: string }>(
          tenant,
          `${runlake.url}/api/v1/bulk-exports/${made}`,
          undefined,
          signal,
        );
        if (status === 'COMPLETED') return;
        assert.ok(status === 'CREATED' || status === 'RUNNING', status);
        await pause(50, undefined, signal && { signal });
      }
    };
  };
  const [ofQuiet, ofNoisy] = [await open(quiet), await open(noisy)];
  return {
    samples: 10,
    pauseMs: 500,
    quiet: () => ofQuiet(1),
    flood: (signal) => again(10, signal, () => ofNoisy(days, signal)),
  };
}
