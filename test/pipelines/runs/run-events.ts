import { createHash, randomUUID } from 'node:crypto';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { AvroWriter, buildContainerSchema, buildWirePrefix } from '../../../infra/event-log/avro.ts';
import { formatDottedOrderSegment } from '../../../pipelines/ingest/run-event/dotted-order.ts';
import {
  encodeRunEvent,
  nilUuid,
  type RunEvent,
  type RunValues,
} from '../../../pipelines/ingest/run-event/run-event.ts';
import { neverSeconds, traceTiers } from '../../../pipelines/retention/lifetimes.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { encodeAvroContainer } from '../../engines/encode-avro-container.ts';

/** Returns a UUID that is derived from the given words. */
export function deriveUuid(...words: ReadonlyArray<string | number>): string {
  const hex = createHash('sha256').update(words.join(' ')).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

export const tenantId = deriveUuid('tenant');
export const projectId = deriveUuid('project');
export const otherProjectId = deriveUuid('other project');
/** A time in the past, on a whole second. */
export const noonMicros = Date.UTC(2026, 2, 5, 12) * 1_000;

export const json = (value: unknown) => Buffer.from(JSON.stringify(value));

/** Returns a run event, by default of a root run in its own trace. Its key time is its start time. */
export function runEvent(event: Partial<RunEvent> & { values?: RunValues } = {}): RunEvent {
  const runId = event.runId ?? randomUUID();
  const traceId = event.traceId ?? runId;
  const startTimeMicros = event.startTimeMicros ?? noonMicros;
  const traceTimeMicros = event.traceTimeMicros ?? startTimeMicros;
  const own = formatDottedOrderSegment(startTimeMicros, runId);
  return {
    kind: 'post',
    tenantId,
    projectId,
    receivedAtMicros: startTimeMicros + 1_000_000,
    userId: nilUuid,
    keyId: nilUuid,
    dottedOrder: traceId === runId ? own : `${formatDottedOrderSegment(traceTimeMicros, traceId)}.${own}`,
    values: {},
    ...event,
    runId,
    traceId,
    startTimeMicros,
    traceTimeMicros,
  };
}

let version = 0n;

/** Tier and expiry of rows, as prefix columns of {@link runEvents}. */
export const neverExpires = [BigInt(traceTiers.longlived), BigInt(neverSeconds)];

/**
 * Stores events as one insert batch, as the sink does. Later events, also of later calls, have higher versions. The
 * version of a trace location is the time of acceptance.
 */
export async function insertEvents(clickhouse: ClickHouse, events: readonly RunEvent[]): Promise<void> {
  if (events.length === 0) return;
  const records = events.map((event) => {
    const writer = new AvroWriter(1_024);
    writer.raw(buildWirePrefix(1));
    encodeRunEvent(writer, event);
    version += 1n;
    return { value: Buffer.from(writer.since(0)), prefix: [version, BigInt(event.receivedAtMicros), ...neverExpires] };
  });
  await clickhouse.insertBody({
    name: 'test',
    table: runEvents.table,
    columns: [...runEvents.prefix, ...runEvents.columns],
    format: 'Avro',
    body: encodeAvroContainer(buildContainerSchema(runEvents.schema, runEvents.prefix), records),
    // Unlike the events of the sink's insert batches, the events of a test may be years apart.
    settings: { max_partitions_per_insert_block: '0' },
  });
}
