/** Formats a number as `1,234`. */
export function formatNumber(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/**
 * Formats a number of bytes as `900 B` or `1.2 MB`. Uses decimal units, and at least two significant digits above 1 kB.
 */
export function formatBytes(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1_000;
    unit++;
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Formats a duration as `0.4 s`, `12 s`, `3 min 20 s` or `2 h 05 min`. */
export function formatDuration(seconds: number): string {
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const wholeSeconds = Math.round(seconds);
  if (wholeSeconds < 60) return `${wholeSeconds} s`;
  const padTwoDigits = (value: number) => String(value).padStart(2, '0');
  if (wholeSeconds < 3_600) return `${Math.floor(wholeSeconds / 60)} min ${padTwoDigits(wholeSeconds % 60)} s`;
  const minutes = Math.round(wholeSeconds / 60);
  return `${Math.floor(minutes / 60)} h ${padTwoDigits(minutes % 60)} min`;
}
