/** Microseconds since 1970 as clients get times: `2026-01-02T03:04:05.123456`, UTC without saying so. */
export function timeText(micros: number): string {
  const seconds = Math.floor(micros / 1_000_000);
  const wholeSeconds = new Date(seconds * 1_000).toISOString().slice(0, 19);
  return `${wholeSeconds}.${String(micros - seconds * 1_000_000).padStart(6, '0')}`;
}

/** The same moment as dotted_order has it: `20260102T030405123456Z`. */
export function segmentTimeText(micros: number): string {
  return `${timeText(micros).replace(/[-:.]/g, '')}Z`;
}
