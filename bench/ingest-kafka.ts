/**
 * Cost of ingest with Kafka: runs a second accepted over HTTP, which means in Kafka with the acknowledgement of all
 * in-sync replicas, as a share of one process that encodes and produces the same records with the bare client.
 *
 * The bodies of `bench/ingest`: 100 runs of 1 KB, three parts a run, uncompressed; 8 clients; a separate `runlake api`
 * on a separate stack, four partitions. The floor sends 100 records at a time, with eight concurrent sends. Both in
 * turns.
 */
import { randomUUID } from 'node:crypto';
import { mediansOf, printFigures, quantile, round } from './figures.ts';
import { makeRuns, multipartBody, multipartType, runsPerBody } from './ingest-load/bodies.ts';
import { cpuSeconds, maxPeakMib, memoryMib } from './ingest-load/process-figures.ts';
import { encodeParsed, parsed } from './ingest-load/records.ts';
import { sendAll } from './ingest-load/send.ts';
import { openBareTopic } from './ingest-load/topic.ts';
import { withStack } from './stack.ts';
import { startBenchRole, started } from './started.ts';

const turns = 5;
const bodiesPerTurn = 300;
const clients = 8;

await withStack(async (stack) => {
  const api = await startBenchRole('api', stack.environment);
  const topic = await started(openBareTopic(stack), (open) => open.close());
  const options = { url: api.url, apiKey: stack.apiKey, contentType: multipartType, clients, path: '/runs/multipart' };
  const bodies = (count: number) => Array.from({ length: count }, () => multipartBody(makeRuns(runsPerBody)));
  const runs = bodiesPerTurn * runsPerBody;

  const accepted = async () => {
    const prepared = bodies(bodiesPerTurn);
    const [clientBefore, serverBefore] = [process.cpuUsage(), cpuSeconds(api.pid)];
    const began = performance.now();
    const times = await sendAll(prepared, options);
    const seconds = (performance.now() - began) / 1_000;
    const client = process.cpuUsage(clientBefore);
    return {
      perSecond: runs / seconds,
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
      server: ((cpuSeconds(api.pid) - serverBefore) / runs) * 1e6,
      client: (client.user + client.system) / runs,
    };
  };
  const floor = async () => {
    const owner = { tenantId: randomUUID(), projectId: randomUUID(), schemaId: topic.schemaId };
    const batches = Array.from({ length: bodiesPerTurn }, () => parsed(makeRuns(runsPerBody)));
    const began = performance.now();
    let next = 0;
    const sender = async () => {
      for (let batch = batches[next++]; batch !== undefined; batch = batches[next++]) {
        await topic.produce(batch, encodeParsed(batch, owner), owner.tenantId);
      }
    };
    await Promise.all(Array.from({ length: clients }, sender));
    return (runs / (performance.now() - began)) * 1_000;
  };

  await sendAll(bodies(40), options);
  await floor();
  const results: (Awaited<ReturnType<typeof accepted>> & { floor: number })[] = [];
  for (let turn = 0; turn < turns; turn++) results.push({ ...(await accepted()), floor: await floor() });
  const alone = await sendAll(bodies(100), { ...options, clients: 1 });
  const of = mediansOf(results, 1);
  printFigures({
    bench: 'ingest-kafka',
    ratio: of(({ perSecond, floor }) => perSecond / floor, 3),
    target: 0.55,
    higher_is_better: true,
    runs_per_second: of(({ perSecond }) => perSecond, 0),
    floor_runs_per_second: of(({ floor }) => floor, 0),
    p50_ms_of_8_clients: of(({ p50 }) => p50),
    p99_ms_of_8_clients: of(({ p99 }) => p99),
    alone_p50_ms: round(quantile(alone, 0.5), 1),
    alone_p99_ms: round(quantile(alone, 0.99), 1),
    server_cpu_us_per_run: of(({ server }) => server),
    client_cpu_us_per_run: of(({ client }) => client),
    peak_memory_mib: round(memoryMib(api.pid, 'VmHWM'), 0),
    peak_memory_mib_target: maxPeakMib,
    turns,
  });
});
