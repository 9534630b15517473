/**
 * Cost of ingest: runs a second over HTTP until all are stored, as a share of a floor measured in the same execution. The
 * times are those of the requests, which are acknowledged when their runs are durable.
 *
 * Bodies of 100 runs of 1 KB, three parts a run, built beforehand and uncompressed; 8 clients; a separate `runlake
 * all`. The floor encodes parsed rows with the product's encoder and inserts them into the same ClickHouse, in batches of
 * 400 rows. Product, floor and the same runs as OTLP protobuf take turns (`otlp_ratio`: share of the multipart figure,
 * target 0.6). Larger batches make both faster, so `ratio_with_equal_batches` compares the product with inserts of its
 * own mean batch size (0.25). Also reported, without a target: gzip and zstd bodies, a single request, CPU seconds, memory.
 */
import { gzipSync } from 'node:zlib';
import { openClickHouse } from '../infra/clickhouse/client.ts';
import { createLogger } from '../infra/telemetry/logger.ts';
import { mediansOf, printFigures, quantile, round } from './figures.ts';
import { makeRuns, multipartBody, multipartType, runsPerBody } from './ingest-load/bodies.ts';
import { insertFloor } from './ingest-load/floor.ts';
import { otlpBody, otlpType } from './ingest-load/otlp-bodies.ts';
import { cpuSeconds, memoryMib } from './ingest-load/process-figures.ts';
import { type SendOptions, sendAll } from './ingest-load/send.ts';
import { insertBatchesSoFar, untilInserted } from './ingest-load/stored.ts';
import { zstdBodies } from './ingest-load/zstd-bodies.ts';
import { atEnd, startBenchRunlake } from './started.ts';

const rounds = Number(process.env.BENCH_ROUNDS ?? 5);
const bodiesPerRound = 300;
const bodiesBeside = 100;
const floorBatchRows = 400;
const target = 0.7;

const runlake = await startBenchRunlake();
const clickhouse = openClickHouse({
  url: runlake.stores().clickhouseUrl,
  logger: createLogger('warn', 'bench'),
  timeoutMs: 60_000,
});
atEnd(() => clickhouse.close());
const multipart: SendOptions = {
  url: runlake.url,
  apiKey: runlake.apiKey,
  contentType: multipartType,
  clients: 8,
  path: '/runs/multipart',
};
const otlp: SendOptions = { ...multipart, contentType: otlpType, path: '/otel/v1/traces' };

await sendAll(bodies(40), multipart);
await sendAll(bodies(10, otlpBody), otlp);
const results: Awaited<ReturnType<typeof measure>>[] = [];
for (let turn = 0; turn < rounds; turn++) results.push(await measure());
const of = mediansOf(results, 1);
const gzip = await throughput(
  bodies(bodiesBeside).map((body) => gzipSync(body)),
  { ...multipart, encoding: 'gzip' },
);
const packed = zstdBodies(bodies(bodiesBeside));
const zstd = packed && (await throughput(packed, { ...multipart, encoding: 'zstd' }));
const alone = await sendAll(bodies(bodiesBeside), { ...multipart, clients: 1 });
printFigures({
  bench: 'ingest',
  ratio: of(({ product, floor }) => product / floor, 3),
  target,
  higher_is_better: true,
  ratio_with_equal_batches: of(({ product, equalBatches }) => product / equalBatches, 3),
  ratio_with_equal_batches_target: 0.25,
  otlp_ratio: of(({ product, spans }) => spans / product, 3),
  otlp_target: 0.6,
  runs_per_second: of(({ product }) => product, 0),
  floor_runs_per_second: of(({ floor }) => floor, 0),
  otlp_spans_per_second: of(({ spans }) => spans, 0),
  gzip_runs_per_second: round(gzip, 0),
  zstd_runs_per_second: zstd === undefined ? null : round(zstd, 0),
  mean_insert_batch_rows: of(({ insertBatchRows }) => insertBatchRows, 0),
  p50_ms_of_8_clients: of(({ p50 }) => p50),
  p99_ms_of_8_clients: of(({ p99 }) => p99),
  alone_p50_ms: round(quantile(alone, 0.5)),
  alone_p99_ms: round(quantile(alone, 0.99)),
  server_cpu_us_per_run: of(({ server }) => server),
  client_cpu_us_per_run: of(({ client }) => client),
  peak_memory_mib: round(memoryMib(runlake.pid, 'VmHWM'), 0),
  rounds,
});

function bodies(count: number, make = multipartBody): Buffer[] {
  return Array.from({ length: count }, () => make(makeRuns(runsPerBody)));
}

async function measure() {
  const prepared = bodies(bodiesPerRound);
  const spans = bodies(bodiesPerRound, otlpBody);
  const runs = bodiesPerRound * runsPerBody;
  const before = await insertBatchesSoFar(runlake.url);
  const clientBefore = process.cpuUsage();
  const serverBefore = cpuSeconds(runlake.pid);
  const began = performance.now();
  const times = await sendAll(prepared, multipart);
  await untilInserted(runlake.url, before.rows + runs);
  const seconds = (performance.now() - began) / 1_000;
  const clientCpu = process.cpuUsage(clientBefore);
  const server = ((cpuSeconds(runlake.pid) - serverBefore) / runs) * 1e6;
  const after = await insertBatchesSoFar(runlake.url);
  const insertBatchRows = (after.rows - before.rows) / (after.count - before.count);
  return {
    product: runs / seconds,
    floor: await insertFloor(makeRuns(runs), floorBatchRows, clickhouse),
    equalBatches: await insertFloor(makeRuns(runs), Math.round(insertBatchRows), clickhouse),
    spans: await throughput(spans, otlp),
    insertBatchRows,
    server,
    client: (clientCpu.user + clientCpu.system) / runs,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
  };
}

async function throughput(prepared: readonly Buffer[], options: SendOptions): Promise<number> {
  const runs = prepared.length * runsPerBody;
  const { rows } = await insertBatchesSoFar(runlake.url);
  const began = performance.now();
  await sendAll(prepared, options);
  await untilInserted(runlake.url, rows + runs);
  return (runs / (performance.now() - began)) * 1_000;
}
