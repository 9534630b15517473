/** Where a run lies in the table: the fields of its sorting key, less the tenant. Ids are lower case with dashes. */
export interface RunKey {
  readonly projectId: string;
  readonly startTimeMicros: number;
  readonly traceId: string;
  readonly runId: string;
}

/** Newest first, or oldest first; by key time, ties broken by the ids in ClickHouse's order. */
export type Order = 'asc' | 'desc';

/** A stretch of key times, in microseconds. */
export interface TimeWindow {
  readonly fromMicros: number;
  readonly untilMicrosExclusive: number;
}

/** Every time that the tables can hold: 1970 to 2260. */
export const allTimes: TimeWindow = { fromMicros: 0, untilMicrosExclusive: 9_180_000_000_000_000 };
