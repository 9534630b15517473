import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { startTimeMicrosOf } from '../run-event/key-fields.ts';

/** A record that passed inspection. */
export interface GoodRecord {
  readonly record: LogRecord;
  readonly schemaId: number;
}

export interface CutLimits {
  readonly rows: number;
  readonly bytes: number;
}

/** ClickHouse refuses an insert over more than a hundred table partitions; half of it leaves room for the views. */
const maxTablePartitions = 50;

const weekMicros = 7 * 24 * 3_600 * 1_000_000;
/** 1970-01-01 was a Thursday: weeks that begin on Monday are three days off. */
const mondayOffsetMicros = 3 * 24 * 3_600 * 1_000_000;

/**
 * Splits `records` into runs of neighbours that can go into one insert: one schema, bounded rows and bytes, and for run
 * events at most fifty weeks. The order stays.
 */
export function splitIntoCuts(records: readonly GoodRecord[], limits: CutLimits, byWeek: boolean): GoodRecord[][] {
  const cuts: GoodRecord[][] = [];
  let cut: GoodRecord[] = [];
  let bytes = 0;
  const weeks = new Set<number>();
  for (const good of records) {
    const week = byWeek ? Math.floor((startTimeMicrosOf(good.record.value) + mondayOffsetMicros) / weekMicros) : 0;
    const full =
      cut.length >= limits.rows ||
      bytes + good.record.value.length > limits.bytes ||
      (weeks.size >= maxTablePartitions && !weeks.has(week)) ||
      cut[0]?.schemaId !== good.schemaId;
    if (full && cut.length > 0) {
      cuts.push(cut);
      cut = [];
      bytes = 0;
      weeks.clear();
    }
    cut.push(good);
    bytes += good.record.value.length;
    weeks.add(week);
  }
  if (cut.length > 0) cuts.push(cut);
  return cuts;
}
