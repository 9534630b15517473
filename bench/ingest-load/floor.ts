import { randomUUID } from 'node:crypto';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { buildContainerSchema } from '../../infra/event-log/avro.ts';
import { neverSeconds } from '../../pipelines/retention/lifetimes.ts';
import { runEvents } from '../../schemas/topics.ts';
import { encodeAvroContainer } from '../../test/engines/encode-avro-container.ts';
import type { LoadRun } from './bodies.ts';
import { encodeParsed, parsed } from './records.ts';

/**
 * The floor: one process encodes parsed rows with the product's encoder and inserts batches of the product's mean size,
 * one after the other. @returns runs a second.
 */
export async function insertFloor(
  runs: readonly LoadRun[],
  insertBatchRows: number,
  clickhouse: ClickHouse,
): Promise<number> {
  const owner = { tenantId: randomUUID(), projectId: randomUUID(), schemaId: 1 };
  const rows = parsed(runs);
  const began = performance.now();
  for (let at = 0; at < rows.length; at += insertBatchRows) {
    const records = encodeParsed(rows.slice(at, at + insertBatchRows), owner);
    await insertAvro(buildContainer(records), clickhouse);
  }
  return (runs.length / (performance.now() - began)) * 1_000;
}

const schema = buildContainerSchema(runEvents.schema, runEvents.prefix);
const version = BigInt(Date.now()) << 22n;

export function buildContainer(records: readonly Buffer[]): Buffer {
  return encodeAvroContainer(
    schema,
    records.map((value) => ({ value, prefix: [version, version, 2n, BigInt(neverSeconds)] })),
  );
}

/** One insert with the statement of the sink. */
export function insertAvro(body: Buffer, clickhouse: ClickHouse): Promise<void> {
  return clickhouse.insertBody({
    name: 'bench-floor',
    table: runEvents.table,
    columns: [...runEvents.prefix, ...runEvents.columns],
    format: 'Avro',
    body,
  });
}
