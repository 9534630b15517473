/**
 * Cost of the sink: runs a second from topic to visible, as a share of consuming the same records with the bare client
 * plus inserting them as prepared Avro, in batches of the product's mean size.
 *
 * 200,000 records of 1.1 KB on four partitions a turn, in the topic before `runlake ingest` starts on it. Its time is
 * from the first visible rows to the last, over the rows that came in between; the share of the floor's consumer is
 * measured in the same way.
 */
import { randomUUID } from 'node:crypto';
import { mediansOf, printFigures } from './figures.ts';
import { makeRuns } from './ingest-load/bodies.ts';
import { buildContainer, insertAvro } from './ingest-load/floor.ts';
import { cpuSeconds, maxPeakMib, memoryMib } from './ingest-load/process-figures.ts';
import { encodeParsed, parsed } from './ingest-load/records.ts';
import { insertBatchesSoFar, polled, visibleRuns } from './ingest-load/stored.ts';
import { openBareTopic } from './ingest-load/topic.ts';
import { withStack } from './stack.ts';
import { startBenchRole, started } from './started.ts';

const turns = 3;
const recordsPerTurn = 200_000;
const batchRows = 1_000;
/** Counting the rows more often takes CPU time from the sink; one interval is 1 % of a turn. */
const pollMs = 100;

await withStack(async (stack) => {
  const { clickhouse, environment } = stack;
  // Creates tables, topics and schemas.
  await (await startBenchRole('ingest', environment)).end();
  const topic = await started(openBareTopic(stack), (open) => open.close());
  const results: { product: number; floor: number; meanBatchRows: number; cpu: number; mib: number }[] = [];
  for (let turn = 0; turn < turns; turn++) {
    const owner = { tenantId: randomUUID(), projectId: randomUUID(), schemaId: topic.schemaId };
    for (let sent = 0; sent < recordsPerTurn; sent += batchRows) {
      const runs = parsed(makeRuns(batchRows));
      await topic.produce(runs, encodeParsed(runs, owner), owner.tenantId);
    }
    const product = await store(owner.tenantId);
    const consumeMs = await topic.consume(recordsPerTurn * (turn + 1));
    const floorOwner = { ...owner, tenantId: randomUUID() };
    const insertBatchRows = Math.round(product.meanBatchRows);
    let insertMs = 0;
    for (let done = 0; done < recordsPerTurn; done += insertBatchRows) {
      const records = encodeParsed(parsed(makeRuns(Math.min(insertBatchRows, recordsPerTurn - done))), floorOwner);
      const body = buildContainer(records);
      const began = performance.now();
      await insertAvro(body, clickhouse);
      insertMs += performance.now() - began;
    }
    const floor = recordsPerTurn / (consumeMs / (turn + 1) + insertMs);
    results.push({ ...product, floor: floor * 1_000 });
  }

  /** Starts the sink and polls the visible rows until all are there. */
  async function store(tenantId: string) {
    const ingest = await startBenchRole('ingest', environment);
    let [firstMs, firstRows, cpuBefore] = [0, 0, 0];
    await polled('all runs to be visible', pollMs, async () => {
      const rows = await visibleRuns(clickhouse, tenantId);
      if (rows > 0 && firstRows === 0) {
        [firstMs, firstRows, cpuBefore] = [performance.now(), rows, cpuSeconds(ingest.pid)];
      }
      return rows >= recordsPerTurn;
    });
    const handled = recordsPerTurn - firstRows;
    const product = (handled / (performance.now() - firstMs)) * 1_000;
    const insertBatches = await insertBatchesSoFar(ingest.url);
    const figures = {
      product,
      meanBatchRows: insertBatches.rows / insertBatches.count,
      cpu: ((cpuSeconds(ingest.pid) - cpuBefore) / handled) * 1e6,
      mib: memoryMib(ingest.pid, 'VmHWM'),
    };
    await ingest.end();
    return figures;
  }

  const of = mediansOf(results, 0);
  printFigures({
    bench: 'sink',
    ratio: of(({ product, floor }) => product / floor, 3),
    target: 0.7,
    higher_is_better: true,
    runs_per_second: of(({ product }) => product),
    floor_runs_per_second: of(({ floor }) => floor),
    mean_insert_batch_rows: of(({ meanBatchRows }) => meanBatchRows),
    sink_cpu_us_per_run: of(({ cpu }) => cpu, 1),
    peak_memory_mib: of(({ mib }) => mib),
    peak_memory_mib_target: maxPeakMib,
    records_per_turn: recordsPerTurn,
    turns,
  });
});
