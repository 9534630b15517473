/**
 * What ingest costs: runs a second until durable, over HTTP, as a share of a floor made in the same run.
 *
 * Bodies of 100 runs of 1 KB, three parts a run, built beforehand and uncompressed; 8 clients; a `runlake all` of its own.
 * The floor encodes parsed rows with the product's encoder and inserts cuts of the product's mean size into the same
 * ClickHouse. Product and floor take turns. Beside it, without a target: gzip bodies, one request alone, CPU seconds.
 */
import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { openWarehouse } from '../infra/clickhouse/client.ts';
import { createLogger } from '../infra/telemetry/logger.ts';
import { startRunlake } from '../test/runlake-process.ts';
import { makeRuns, multipartBody, multipartType, runsPerBody } from './ingest-load/bodies.ts';
import { insertFloor } from './ingest-load/floor.ts';
import { percentile, sendAll } from './ingest-load/send.ts';

const rounds = Number(process.env.BENCH_ROUNDS ?? 5);
const bodiesPerRound = Number(process.env.BENCH_BODIES ?? 300);
const clients = 8;
const target = 0.35;

const runlake = await startRunlake();
const logger = createLogger('warn', 'bench');
const warehouse = openWarehouse({ url: runlake.stores().clickhouseUrl, logger, timeoutMs: 60_000 });
const options = {
  url: runlake.url,
  apiKey: runlake.apiKey,
  contentType: multipartType,
  clients,
  path: '/runs/multipart',
};
try {
  await load(40);
  const results: { product: number; floor: number; cut: number; p99: number; server: number; client: number }[] = [];
  for (let round = 0; round < rounds; round++) results.push(await measure());
  const gzip = await throughput(
    bodies(100).map((body) => gzipSync(body)),
    'gzip',
  );
  const alone = await sendAll(bodies(100), { ...options, clients: 1 });
  const figures = {
    runs_per_second: Math.round(median(results.map(({ product }) => product))),
    floor_runs_per_second: Math.round(median(results.map(({ floor }) => floor))),
    mean_cut_rows: Math.round(median(results.map(({ cut }) => cut))),
    gzip_runs_per_second: Math.round(gzip),
    p99_ms_of_8_clients: round(median(results.map(({ p99 }) => p99))),
    alone_p50_ms: round(percentile(alone, 0.5)),
    alone_p99_ms: round(percentile(alone, 0.99)),
    server_cpu_us_per_run: round(median(results.map(({ server }) => server))),
    client_cpu_us_per_run: round(median(results.map(({ client }) => client))),
    peak_memory_mib: round(peakMemoryMib()),
    rounds,
  };
  const ratio = round(median(results.map(({ product, floor }) => product / floor)), 3);
  console.log(JSON.stringify({ bench: 'ingest', ratio, target, higher_is_better: true, ...figures }));
} finally {
  await warehouse.close();
  await runlake.remove();
}

function bodies(count: number): Buffer[] {
  return Array.from({ length: count }, () => multipartBody(makeRuns(runsPerBody)));
}

async function load(count: number): Promise<void> {
  await sendAll(bodies(count), options);
}

async function measure() {
  const prepared = bodies(bodiesPerRound);
  const before = await cuts();
  const clientBefore = process.cpuUsage();
  const serverBefore = cpuSeconds(runlake.pid);
  const began = performance.now();
  const times = await sendAll(prepared, options);
  const seconds = (performance.now() - began) / 1_000;
  const clientCpu = process.cpuUsage(clientBefore);
  const after = await cuts();
  const runs = bodiesPerRound * runsPerBody;
  const cut = (after.rows - before.rows) / (after.count - before.count);
  return {
    product: runs / seconds,
    floor: await insertFloor(makeRuns(runs), Math.round(cut), warehouse),
    cut,
    p99: percentile(times, 0.99),
    server: ((cpuSeconds(runlake.pid) - serverBefore) / runs) * 1e6,
    client: (clientCpu.user + clientCpu.system) / runs,
  };
}

async function throughput(prepared: Buffer[], encoding: string): Promise<number> {
  const began = performance.now();
  await sendAll(prepared, { ...options, encoding });
  return ((prepared.length * runsPerBody) / (performance.now() - began)) * 1_000;
}

/** Rows and number of the product's inserts so far. */
async function cuts(): Promise<{ rows: number; count: number }> {
  const text = await (await fetch(`${runlake.url}/metrics`)).text();
  const value = (name: string) =>
    Number(new RegExp(`^runlake_sink_cut_rows_${name}\\{table="runs"\\} (\\S+)`, 'm').exec(text)?.[1] ?? 0);
  return { rows: value('sum'), count: value('count') };
}

function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

function peakMemoryMib(): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${runlake.pid}/status`, 'utf8'))?.[1] ?? 0) / 1_024;
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

function round(value: number, digits = 1): number {
  return Number(value.toFixed(digits));
}
