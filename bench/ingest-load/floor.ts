import { randomUUID } from 'node:crypto';
import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { avroContainer } from '../../infra/event-log/avro-container.ts';
import { AvroWriter } from '../../infra/event-log/avro-writer.ts';
import { wirePrefix } from '../../infra/event-log/wire-format.ts';
import { encodeRunEvent } from '../../pipelines/ingest/run-event/encode.ts';
import { nilUuid } from '../../pipelines/ingest/run-event/run-event.ts';
import { runEvents } from '../../schemas/topics.ts';
import type { LoadRun } from './bodies.ts';

/**
 * The floor: one process encodes rows that are parsed already with the product's encoder and inserts cuts of the product's
 * size, one after the other. @returns runs a second.
 */
export async function insertFloor(runs: readonly LoadRun[], cutRows: number, warehouse: Warehouse): Promise<number> {
  const tenantId = randomUUID();
  const projectId = randomUUID();
  const parsed = runs.map((run) => ({
    ...run,
    inputs: Buffer.from(run.inputs),
    outputs: Buffer.from(run.outputs),
    extra: Buffer.from('{"metadata":{"revision":"a1b2c3d","thread_id":"thread-1"}}'),
  }));
  const began = performance.now();
  for (let at = 0; at < parsed.length; at += cutRows) {
    const writer = new AvroWriter(1_500 * cutRows);
    const records: Buffer[] = [];
    for (const run of parsed.slice(at, at + cutRows)) {
      const start = writer.position;
      writer.raw(wirePrefix(1));
      encodeRunEvent(writer, {
        kind: 'post',
        tenantId,
        projectId,
        traceId: run.traceId,
        runId: run.id,
        startTimeMicros: run.startTimeMicros,
        traceTimeMicros: run.traceTimeMicros,
        receivedAtMicros: Date.now() * 1_000,
        userId: nilUuid,
        keyId: nilUuid,
        dottedOrder: run.dottedOrder,
        values: {
          name: 'step of the agent',
          runType: 'tool',
          startedAtMicros: run.startTimeMicros,
          endedAtMicros: run.startTimeMicros + 250_000,
          inputs: run.inputs,
          outputs: run.outputs,
          extra: run.extra,
        },
      });
      records.push(writer.since(start));
    }
    await warehouse.insertBody({
      name: 'bench-floor',
      table: runEvents.table,
      columns: runEvents.columns,
      format: 'Avro',
      body: avroContainer(runEvents.schema, records),
      token: randomUUID(),
    });
  }
  return (runs.length / (performance.now() - began)) * 1_000;
}
