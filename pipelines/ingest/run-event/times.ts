/**
 * Times as clients write them: ISO 8601 with up to nine digits of a second, with `Z`, an offset or no zone (which means UTC),
 * or whole milliseconds since 1970. Source: what stock SDKs send.
 */
const isoTime =
  /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|z|[+-]\d\d(?::?\d\d)?)?)?$/;

/** Milliseconds beyond these are no time that a year of four digits has. */
const earliestMs = Date.UTC(1, 0, 1) - 1_900 * 365.2425 * 86_400_000;
const latestMs = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

/**
 * Microseconds since 1970, UTC; further digits are cut off. `undefined` where `value` is no time: a day that its month does
 * not have, hour 24, second 60 (a leap second has no place of its own in this count).
 */
export function parseTime(value: string | number): number | undefined {
  if (typeof value === 'number') {
    return Number.isFinite(value) && value >= earliestMs && value <= latestMs ? Math.trunc(value * 1_000) : undefined;
  }
  const match = isoTime.exec(value);
  if (match === null) return undefined;
  const [, year, month, day, hour = '0', minute = '0', second = '0', fraction = '', zone] = match;
  const days = daysSince1970(Number(year), Number(month), Number(day));
  if (days === undefined || Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return undefined;
  const offset = zoneMinutes(zone);
  if (offset === undefined) return undefined;
  const seconds = days * 86_400 + Number(hour) * 3_600 + (Number(minute) - offset) * 60 + Number(second);
  return seconds * 1_000_000 + Number(fraction.slice(0, 6).padEnd(6, '0'));
}

/** Days from 1970-01-01 to a date of the Gregorian calendar; `undefined` where there is no such date. */
export function daysSince1970(year: number, month: number, day: number): number | undefined {
  if (month < 1 || month > 12 || day < 1 || year < 1) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  return Math.floor(date.getTime() / 86_400_000);
}

function zoneMinutes(zone: string | undefined): number | undefined {
  if (zone === undefined || zone === 'Z' || zone === 'z') return 0;
  const hours = Number(zone.slice(1, 3));
  const minutes = Number(zone.slice(-2)) * (zone.length > 3 ? 1 : 0);
  if (hours > 23 || minutes > 59) return undefined;
  return (zone[0] === '-' ? -1 : 1) * (hours * 60 + minutes);
}

/** `2026-01-02T03:04:05.123456`, UTC without a zone: the form in which runs answer their times. */
export function formatTime(micros: number): string {
  const seconds = Math.floor(micros / 1_000_000);
  const rest = micros - seconds * 1_000_000;
  return `${new Date(seconds * 1_000).toISOString().slice(0, -5)}.${String(rest).padStart(6, '0')}`;
}

/** {@link formatTime} with the zone said: `2026-01-02T03:04:05.123456+00:00`. */
export function formatTimeWithZone(micros: number): string {
  return `${formatTime(micros)}+00:00`;
}
