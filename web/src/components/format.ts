/** Formats of times, durations and amounts. */

const integer = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export function formatCount(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : integer.format(value);
}

/** Formats a number of things: `1 run`, `2,000 runs`. */
export function formatQuantity(count: number | null | undefined, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`;
}

export function formatCompact(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  return value < 10_000 ? integer.format(value) : compact.format(value);
}

/** Formats a duration in seconds with about three digits: `12 ms`, `1.24 s`, `2 m 05 s`. */
export function formatSeconds(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 100) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${pad(whole % 60)} s`;
  return `${integer.format(Math.floor(whole / 3600))} h ${pad(Math.floor((whole % 3600) / 60))} m`;
}

/** Formats an amount of US dollars; small amounts keep two significant digits. */
export function formatCost(value: number | string | null | undefined): string {
  if (value === null || value === undefined) return '–';
  const amount = Number(value);
  if (amount === 0) return '$0';
  if (amount >= 0.01) return `$${amount.toLocaleString('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return amount < 0.000_001 ? '<$0.000001' : `$${Number(amount.toPrecision(2)).toFixed(6).replace(/0+$/, '')}`;
}

export function formatPercent(share: number | null | undefined): string {
  if (share === null || share === undefined) return '–';
  return `${(share * 100).toFixed(share > 0 && share < 0.01 ? 2 : 1)} %`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** Parses a time of the API. Version 1 writes UTC without a zone. */
export function parseTime(text: string): Date {
  return new Date(/(Z|[+-]\d\d:\d\d)$/.test(text) ? text : `${text}Z`);
}

/** Returns the seconds between two times of the API, to the microsecond; null if the end is unknown. */
export function secondsBetween(start: string, end: string | null | undefined): number | null {
  if (!end) return null;
  const seconds = (parseTime(end).getTime() - parseTime(start).getTime()) / 1000;
  const micros = (text: string) => Number(/\.\d{3}(\d{1,3})/.exec(text)?.[1]?.padEnd(3, '0') ?? 0);
  return seconds + (micros(end) - micros(start)) / 1_000_000;
}

/** Formats a time in the zone of the viewer: the time of day, with the date if it is another day than `now`. */
export function formatTime(time: Date, now: Date): string {
  const clock = `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
  if (time.toDateString() === now.toDateString()) return clock;
  const day = `${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
  return time.getFullYear() === now.getFullYear() ? `${day} ${clock}` : `${time.getFullYear()}-${day} ${clock}`;
}

/** Formats a time as UTC, for tooltips. */
export function formatUtc(time: Date): string {
  return `${time.toISOString().slice(0, 23).replace('T', ' ')} UTC`;
}

/** Formats a time of the API as its UTC day, with the time of day if that is not midnight. */
export function formatUtcDay(text: string): string {
  const iso = parseTime(text).toISOString();
  return iso.slice(0, 10) + (iso.slice(11, 19) === '00:00:00' ? '' : ` ${iso.slice(11, 16)}`);
}

/** The last value of an input of the type `datetime-local` whose year has four digits, as years of the API have. */
export const maxLocalTime = '9999-12-31T23:59';

function pad(value: number): string {
  return String(value).padStart(2, '0');
}
