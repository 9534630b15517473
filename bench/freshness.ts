/**
 * Delay until an accepted run is visible: from the acknowledgement of Kafka to the first read that finds the run, at
 * half of the sink's rate.
 *
 * A separate stack and `runlake ingest`. The sink's rate is measured first, as the time for 100,000 records that are
 * sent as fast as possible. Then half of it for a minute, with a batch every fiftieth of a second. One run of every
 * fifth batch is queried until it is visible: more frequent queries would put their own load on the same CPUs. Target:
 * p50 at most 1 s, p99 at most 2 s (`ratio`: that of p99 to its target, or of p50, the worse).
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { ClickHouse } from '../infra/clickhouse/clickhouse.ts';
import { printFigures, quantile, round } from './figures.ts';
import { makeRuns } from './ingest-load/bodies.ts';
import { Probes } from './ingest-load/probes.ts';
import { memoryMib } from './ingest-load/process-figures.ts';
import { encodeParsed, parsed, type RecordOwner } from './ingest-load/records.ts';
import { polled, visibleRuns } from './ingest-load/stored.ts';
import { type BareTopic, openBareTopic } from './ingest-load/topic.ts';
import { withStack } from './stack.ts';
import { startBenchRole, started } from './started.ts';

const measuredRecords = 100_000;
const seconds = 60;
const batchesPerSecond = 50;
const batchesPerProbe = 5;
const lookEveryMs = 50;
const targets = { p50: 1_000, p99: 2_000 };

await withStack(async (stack) => {
  const { clickhouse, environment } = stack;
  const ingest = await startBenchRole('ingest', environment);
  const topic = await started(openBareTopic(stack), (open) => open.close());
  const owner = { tenantId: randomUUID(), projectId: randomUUID(), schemaId: topic.schemaId };
  const rate = (await sinkRate(topic, owner, clickhouse)) / 2;
  const batchRows = Math.max(1, Math.round(rate / batchesPerSecond));
  const probes = new Probes(clickhouse, owner.tenantId, lookEveryMs);
  const sends: Promise<void>[] = [];
  const began = performance.now();
  for (let batch = 0; batch < seconds * batchesPerSecond; batch++) {
    const runs = parsed(makeRuns(batchRows));
    const records = encodeParsed(runs, owner);
    const sent = topic.produce(runs, records, owner.tenantId).then(() => {
      if (batch % batchesPerProbe === 0) probes.accepted(runs.at(-1)!.id);
    });
    sends.push(sent);
    await pause(Math.max(0, began + ((batch + 1) * 1_000) / batchesPerSecond - performance.now()));
  }
  const perSecond = (seconds * batchesPerSecond * batchRows * 1_000) / (performance.now() - began);
  await Promise.all(sends);
  const times = await probes.finish();
  const [p50, p99] = [quantile(times, 0.5), quantile(times, 0.99)];
  printFigures({
    bench: 'freshness',
    ratio: round(Math.max(p50 / targets.p50, p99 / targets.p99), 3),
    target: 1,
    higher_is_better: false,
    p50_ms: round(p50, 0),
    p99_ms: round(p99, 0),
    p50_target_ms: targets.p50,
    p99_target_ms: targets.p99,
    runs_per_second: round(perSecond, 0),
    sink_runs_per_second: round(rate * 2, 0),
    peak_memory_mib: round(memoryMib(ingest.pid, 'VmHWM'), 0),
    looked_for: times.length,
  });
});

/** Records a second from the first send until the last one is visible. */
async function sinkRate(topic: BareTopic, owner: RecordOwner, clickhouse: ClickHouse): Promise<number> {
  const batches = Array.from({ length: measuredRecords / 1_000 }, () => parsed(makeRuns(1_000)));
  const encoded = batches.map((runs) => encodeParsed(runs, owner));
  const began = performance.now();
  for (const [index, runs] of batches.entries()) await topic.produce(runs, encoded[index]!, owner.tenantId);
  const isVisible = async () => (await visibleRuns(clickhouse, owner.tenantId)) >= measuredRecords;
  await polled('all runs to be visible', lookEveryMs, isVisible);
  return (measuredRecords / (performance.now() - began)) * 1_000;
}
