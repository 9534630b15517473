/** One UTC day of a range, clipped to the range, half-open. ISO 8601 with microseconds. */
export interface DayWindow {
  readonly start: string;
  readonly end: string;
}

const dayMs = 86_400_000;

/**
 * Splits a half-open range into UTC days without gaps or overlap; the first and the last day are clipped to the range.
 * UTC has no daylight saving time, so each day has 24 hours. Times are ISO 8601 in UTC and keep their microseconds.
 */
export function dayWindows(start: string, end: string): DayWindow[] {
  const windows: DayWindow[] = [];
  let from = start;
  for (let dayEnd = (Math.floor(Date.parse(start) / dayMs) + 1) * dayMs; from !== end; dayEnd += dayMs) {
    const midnight = new Date(dayEnd).toISOString().replace('.000Z', '.000000Z');
    const until = midnight < end ? midnight : end;
    windows.push({ start: from, end: until });
    from = until;
  }
  return windows;
}
