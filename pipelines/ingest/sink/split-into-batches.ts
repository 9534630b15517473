import { getFieldOffset, readTimeMicrosAt } from '../../../infra/event-log/avro.ts';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import type { TablePartition, Topic } from '../../../schemas/topics.ts';
import type { Lifetime } from '../../retention/lifetimes.ts';

/** Identity of an event, under which its version is stored. */
interface EventStamp {
  readonly digest: bigint;
  /** Time at which the event, or the event that it repeats, was accepted. */
  readonly receivedAtMicros: number;
}

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
 * Maximum number of partitions of each table. ClickHouse refuses an insert into more than 100. The reserve is for times
 * that a column cannot hold: ClickHouse stores others in their place, and a month may then be two partitions.
 */
const maxTablePartitions = 50;

const dayMicros = 24 * 3_600 * 1_000_000;

/**
 * Splits `records` into insert batches of consecutive records. Each batch has one schema, a bounded number of rows and
 * bytes, and at most 50 partitions of each table that the topic fills. Keeps the order.
 */
export function splitIntoInsertBatches(
  topic: Topic,
  records: readonly ValidRecord[],
  limits: InsertLimits,
): ValidRecord[][] {
  const batches: ValidRecord[][] = [];
  let batch: ValidRecord[] = [];
  let bytes = 0;
  const tables = (topic.tablePartitions ?? []).map((partition) => new BatchPartitions(topic, partition));
  for (const good of records) {
    let isFull =
      batch.length >= limits.rows ||
      bytes + good.record.value.length > limits.bytes ||
      batch[0]?.schemaId !== good.schemaId;
    for (const table of tables) if (!table.accepts(good)) isFull = true;
    if (isFull && batch.length > 0) {
      batches.push(batch);
      batch = [];
      bytes = 0;
      for (const table of tables) table.clear();
    }
    batch.push(good);
    bytes += good.record.value.length;
    for (const table of tables) table.add(good);
  }
  if (batch.length > 0) batches.push(batch);
  return batches;
}

/** The partitions of a table that an insert batch has rows for. */
class BatchPartitions {
  readonly #read: (valid: ValidRecord) => number;
  readonly #partitions = new Set<number>();

  constructor(topic: Topic, { time, unit }: TablePartition) {
    const compute = partitionByMicros[unit];
    const at = time === undefined ? undefined : getFieldOffset(topic, time);
    this.#read = ({ record, lifetime }) =>
      compute(at === undefined ? (lifetime?.expiresAtSeconds ?? 0) * 1_000_000 : readTimeMicrosAt(record.value, at));
  }

  accepts(valid: ValidRecord): boolean {
    return this.#partitions.size < maxTablePartitions || this.#partitions.has(this.#read(valid));
  }

  add(valid: ValidRecord): void {
    this.#partitions.add(this.#read(valid));
  }

  clear(): void {
    this.#partitions.clear();
  }
}

/** Returns the partition of a time in microseconds since 1970. */
const partitionByMicros: Readonly<Record<TablePartition['unit'], (micros: number) => number>> = {
  day: (micros) => Math.floor(micros / dayMicros),
  // Weeks start on Monday, and 1970 started on a Thursday.
  week: (micros) => Math.floor((micros / dayMicros + 3) / 7),
  month(micros) {
    const date = new Date(micros / 1_000);
    return date.getUTCFullYear() * 12 + date.getUTCMonth();
  },
};
