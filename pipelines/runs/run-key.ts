/** Sorting key of a run without the tenant. Ids are lower case with dashes. */
export interface RunKey {
  readonly projectId: string;
  readonly startTimeMicros: number;
  readonly traceId: string;
  readonly runId: string;
}

/** Newest or oldest first by key time; ties are ordered by the ids, as ClickHouse compares them. */
export type Order = 'asc' | 'desc';

/** A half-open range of key times, in microseconds since 1970. */
export interface TimeWindow {
  readonly fromMicros: number;
  readonly untilMicrosExclusive: number;
}

/** All times that the tables can hold: 1970 to 2260. */
export const allTimes: TimeWindow = { fromMicros: 0, untilMicrosExclusive: 9_180_000_000_000_000 };
