import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { placeOf, timeMicrosAt } from '../../../infra/event-log/fixed-fields.ts';
import type { Topic } from '../../../schemas/topics.ts';

/** A record that passed inspection. */
export interface GoodRecord {
  readonly record: LogRecord;
  readonly schemaId: number;
  /** As it came, where fields of `record` were written over. */
  readonly came?: LogRecord;
}

export interface CutLimits {
  readonly rows: number;
  readonly bytes: number;
}

/** ClickHouse refuses an insert over more than a hundred table partitions; half of it leaves room for the views. */
const maxTablePartitions = 50;

const dayMicros = 24 * 3_600 * 1_000_000;

/**
 * Splits `records` into runs of neighbours that can go into one insert: one schema, bounded rows and bytes, and at most
 * fifty partitions of the topic's table. The order stays.
 */
export function splitIntoCuts(topic: Topic, records: readonly GoodRecord[], limits: CutLimits): GoodRecord[][] {
  const cuts: GoodRecord[][] = [];
  let cut: GoodRecord[] = [];
  let bytes = 0;
  const tablePartitions = new Set<number>();
  const tablePartitionOf = tablePartitionsOf(topic);
  for (const good of records) {
    const tablePartition = tablePartitionOf(good.record.value);
    const full =
      cut.length >= limits.rows ||
      bytes + good.record.value.length > limits.bytes ||
      (tablePartitions.size >= maxTablePartitions && !tablePartitions.has(tablePartition)) ||
      cut[0]?.schemaId !== good.schemaId;
    if (full && cut.length > 0) {
      cuts.push(cut);
      cut = [];
      bytes = 0;
      tablePartitions.clear();
    }
    cut.push(good);
    bytes += good.record.value.length;
    tablePartitions.add(tablePartition);
  }
  if (cut.length > 0) cuts.push(cut);
  return cuts;
}

function tablePartitionsOf(topic: Topic): (value: Buffer) => number {
  if (topic.tablePartition === undefined) return () => 0;
  const { time, days, shiftDays } = topic.tablePartition;
  const at = placeOf(topic, time);
  return (value) => Math.floor((timeMicrosAt(value, at) + shiftDays * dayMicros) / (days * dayMicros));
}
