import { getFieldOffset, readTimeMicrosAt } from '../../../infra/event-log/avro.ts';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import type { Topic } from '../../../schemas/topics.ts';
import type { Lifetime } from '../../retention/lifetimes.ts';
import type { EventStamp } from './event-versions.ts';

/** A record that has passed the inspection. */
export interface ValidRecord {
  readonly record: LogRecord;
  readonly schemaId: number;
  /** The record as it was in the log, if fields of `record` were overwritten. */
  readonly original?: LogRecord;
  /** Whether the event itself names the project and trace time that it is stored under. */
  readonly statesLocation?: boolean;
  /** Present for topics with `expires`. */
  readonly lifetime?: Lifetime;
  /** Set by `EventVersions`, for topics with `repeats`. A copy for each step would take a tenth of the sink's CPU time. */
  stamp?: EventStamp;
}

/** A run event that has passed the inspection. */
export interface ValidRunEvent extends ValidRecord {
  /** Trace key from `readTraceKey`. */
  readonly traceKey: string;
  /** Set by `KeyTimes`: false if the process remembers all events of the run. */
  mayBeRepeat?: boolean;
}

export interface InsertLimits {
  readonly rows: number;
  readonly bytes: number;
}

/**
 * ClickHouse refuses an insert into more than 100 table partitions; half of them are reserved for the views of the
 * table.
 */
const maxTablePartitions = 50;

const dayMicros = 24 * 3_600 * 1_000_000;

/**
 * Splits `records` into insert batches of consecutive records. Each batch has one schema, a bounded number of rows and
 * bytes, and at most 50 partitions of the topic's table. Keeps the order.
 */
export function splitIntoInsertBatches(
  topic: Topic,
  records: readonly ValidRecord[],
  limits: InsertLimits,
): ValidRecord[][] {
  const batches: ValidRecord[][] = [];
  let batch: ValidRecord[] = [];
  let bytes = 0;
  const tablePartitions = new Set<number>();
  const readTablePartition = createTablePartitionReader(topic);
  for (const good of records) {
    const tablePartition = readTablePartition(good);
    const full =
      batch.length >= limits.rows ||
      bytes + good.record.value.length > limits.bytes ||
      (tablePartitions.size >= maxTablePartitions && !tablePartitions.has(tablePartition)) ||
      batch[0]?.schemaId !== good.schemaId;
    if (full && batch.length > 0) {
      batches.push(batch);
      batch = [];
      bytes = 0;
      tablePartitions.clear();
    }
    batch.push(good);
    bytes += good.record.value.length;
    tablePartitions.add(tablePartition);
  }
  if (batch.length > 0) batches.push(batch);
  return batches;
}

function createTablePartitionReader(topic: Topic): (valid: ValidRecord) => number {
  if (topic.tablePartition === undefined) return () => 0;
  const { time, days, shiftDays } = topic.tablePartition;
  const computePartition = (micros: number) => Math.floor((micros + shiftDays * dayMicros) / (days * dayMicros));
  if (time === undefined) return ({ lifetime }) => computePartition((lifetime?.expiresAtSeconds ?? 0) * 1_000_000);
  const at = getFieldOffset(topic, time);
  return ({ record }) => computePartition(readTimeMicrosAt(record.value, at));
}
