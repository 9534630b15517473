const daysPer400Years = 146_097;
const dayMs = 86_400_000;

/**
 * Returns the number of days from 1970-01-01 to a date of the Gregorian calendar; `undefined` if the date does not
 * exist. Valid for the years 1 to 9999.
 */
export function countDaysSince1970(year: number, month: number, day: number): number | undefined {
  if (!(year >= 1 && year <= 9999 && month >= 1 && month <= 12)) return undefined;
  // `Date.UTC` reads the years 0 to 99 as 1900 to 1999; the calendar repeats every 400 years.
  const ms = Date.UTC(year + 400, month - 1, day);
  return new Date(ms).getUTCDate() === day ? ms / dayMs - daysPer400Years : undefined;
}

/** Formats the date that is `days` days after 1970-01-01, as `YYYY-MM-DD`. Valid for the years 1 to 9999. */
function formatDate(days: number): string {
  return new Date(days * dayMs).toISOString().slice(0, 10);
}

/** The texts `00` to `99`. */
const twoDigits: readonly string[] = Array.from({ length: 100 }, (_, value) => String(value).padStart(2, '0'));

/** Parses `count` decimal digits of `text` from `at` on; returns -1 if one of the characters is not a digit. */
export function parseDigits(text: string, at: number, count: number): number {
  let value = 0;
  for (let index = at; index < at + count; index++) {
    const digit = text.charCodeAt(index) - 0x30;
    if (!(digit >= 0 && digit <= 9)) return -1;
    value = value * 10 + digit;
  }
  return value;
}

const dayMicros = 86_400_000_000;
const secondMicros = 1_000_000;
const earliestMs = -62_135_596_800_000;
const latestMs = 253_402_300_799_999;
const minuteMicros = 60 * secondMicros;
/** The last double before the year 10000; later times of the year 9999 would be rounded up to that year. */
const latestMicros = 253_402_300_799_999_970;
const maxFractionDigits = 9;

const hourMicros = 3_600_000_000;

/**
 * Returns the start of the UTC hour that contains `micros`, a time in microseconds since 1970. The result is in seconds
 * since 1970.
 */
export function hourSeconds(micros: number): number {
  return Math.floor(micros / hourMicros) * 3_600;
}

/**
 * Parses times as clients write them: ISO 8601 with up to nine fraction digits, a `T` or a space before the time, and
 * `Z`, an offset, or no zone, which means UTC. A date without a time means midnight. A number is whole milliseconds
 * since 1970. Valid for the years 1 to 9999. Source: what stock SDKs send.
 *
 * Returns microseconds since 1970, UTC, and truncates further digits; outside the years 1684 to 2255, the result is
 * rounded to a double. Returns `undefined` if `value` is not a valid time: a day that the month does not have, hour 24,
 * second 60 (leap seconds are not representable), a fraction of a millisecond.
 */
export function parseTime(value: string | number): number | undefined {
  if (typeof value === 'number') {
    return Number.isInteger(value) && value >= earliestMs && value <= latestMs ? value * 1_000 : undefined;
  }
  if (value[4] !== '-' || value[7] !== '-') return undefined;
  const days = countDaysSince1970(parseDigits(value, 0, 4), parseDigits(value, 5, 2), parseDigits(value, 8, 2));
  if (days === undefined) return undefined;
  if (value.length === 10) return days * dayMicros;
  const separator = value[10];
  if ((separator !== 'T' && separator !== ' ' && separator !== 't') || value[13] !== ':') return undefined;
  const hour = parseDigits(value, 11, 2);
  const minute = parseDigits(value, 14, 2);
  let second = 0;
  let fraction = 0;
  let at = 16;
  if (value[at] === ':') {
    second = parseDigits(value, at + 1, 2);
    at += 3;
    if (value[at] === '.' || value[at] === ',') {
      const end = skipDigits(value, at + 1);
      fraction = parseFractionMicros(value, at + 1, end);
      at = end;
    }
  }
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59 || fraction < 0) return undefined;
  const offset = at === value.length ? 0 : parseOffsetMinutes(value, value[at] === ' ' ? at + 1 : at);
  if (offset === undefined) return undefined;
  const minuteStart = days * dayMicros + (hour * 60 + minute - offset) * minuteMicros;
  // An offset can lead to the year 0 or 10000.
  if (minuteStart < earliestMs * 1_000 || minuteStart > latestMicros) return undefined;
  return Math.min(minuteStart + second * secondMicros + fraction, latestMicros);
}

function skipDigits(text: string, from: number): number {
  let at = from;
  while (at < text.length && text.charCodeAt(at) >= 0x30 && text.charCodeAt(at) <= 0x39) at++;
  return at;
}

/** Parses a fraction of a second, in microseconds; returns -1 if the fraction has no digits or too many. */
function parseFractionMicros(text: string, from: number, end: number): number {
  const count = end - from;
  if (count === 0 || count > maxFractionDigits) return -1;
  return count >= 6 ? parseDigits(text, from, 6) : parseDigits(text, from, count) * 10 ** (6 - count);
}

/**
 * Parses the zone at `at` and returns its offset from UTC in minutes. The zone is `Z`, `+02`, `+02:00` or `+0200`, at
 * the end of the text.
 */
function parseOffsetMinutes(text: string, at: number): number | undefined {
  const sign = text[at];
  if (sign === 'Z' || sign === 'z') return text.length === at + 1 ? 0 : undefined;
  if (sign !== '+' && sign !== '-') return undefined;
  const hours = parseDigits(text, at + 1, 2);
  const rest = text.length - at - 3;
  const minutes =
    rest === 0 ? 0 : rest === 2 || (rest === 3 && text[at + 3] === ':') ? parseDigits(text, text.length - 2, 2) : -1;
  if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return undefined;
  return (sign === '-' ? -1 : 1) * (hours * 60 + minutes);
}

/** Caches the last formatted day, because the times of a page or a batch fall on few days. */
let lastEpochDay = 0;
let lastDate = '1970-01-01';

/**
 * Formats a time as `2026-01-02T03:04:05.123456`, in UTC without a zone, as the API returns times of runs. Valid for
 * the years 1 to 9999.
 */
export function formatTime(micros: number): string {
  let days = Math.floor(micros / dayMicros);
  let rest = micros - days * dayMicros;
  if (rest < 0) {
    // The quotient of a large number was rounded up.
    days--;
    rest += dayMicros;
  }
  if (days !== lastEpochDay) {
    lastDate = formatDate(days);
    lastEpochDay = days;
  }
  const seconds = Math.floor(rest / secondMicros);
  const fraction = rest - seconds * secondMicros;
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const clock = `${twoDigits[hours]}:${twoDigits[minutes - hours * 60]}:${twoDigits[seconds - minutes * 60]}`;
  const hundreds = Math.floor(fraction / 100);
  const tenThousands = Math.floor(hundreds / 100);
  const digits = `${twoDigits[tenThousands]}${twoDigits[hundreds - tenThousands * 100]}${twoDigits[fraction - hundreds * 100]}`;
  return `${lastDate}T${clock}.${digits}`;
}

/** Like {@link formatTime}, but with the zone: `2026-01-02T03:04:05.123456+00:00`. */
export function formatTimeWithZone(micros: number): string {
  return `${formatTime(micros)}+00:00`;
}

/**
 * Maximum difference between the stated start of a run and its key time. Clients round `start_time` and the time in
 * dotted_order differently. If the difference is larger, runs are found by the key time, and the key time is shown as
 * their start.
 */
export const startRoundingMicros = 1_000_000;
