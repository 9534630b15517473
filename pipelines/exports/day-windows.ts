/** One UTC day of a range, clipped to it, half-open. In milliseconds since 1970; a range may begin and end between them. */
export interface DayWindow {
  readonly start: string;
  readonly end: string;
}

const dayMs = 86_400_000;

/**
 * Cuts a half-open range into UTC days that tile it: the first begins where it begins, the last ends where it ends. UTC has no
 * summer time; its days all have 24 hours. Times are ISO 8601 in UTC and stay to the microsecond as they are.
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
