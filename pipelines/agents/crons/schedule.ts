import { type CronExpression, CronExpressionParser } from 'cron-parser';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/**
 * A cron expression of five fields (minute, hour, day of month, month, day of week) in the local time of a zone. If
 * both day fields are restricted, a day matches if it matches either field. If a local time does not exist because
 * clocks are set forward, the cron fires later by the size of the gap. If a local time occurs twice, the cron fires
 * once, at the first instant; if the hour field matches every hour, it fires twice.
 */
export interface Schedule {
  /** Returns the first fire time after an instant, in milliseconds since the epoch; undefined if there is none. */
  next(afterMs: number): number | undefined;
  /** Returns the last fire time from `fromMs` to `untilMs`, both inclusive. `fromMs` must be a fire time. */
  latest(fromMs: number, untilMs: number): number;
}

type DayFields = Pick<CronExpression['fields'], 'month' | 'dayOfMonth' | 'dayOfWeek'>;

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const hoursPerDay = 24;
/** Upper bound for the size of a clock change. */
const maxClockChangeMs = 4 * hourMs;

/**
 * Parses a cron expression.
 *
 * @param timezone IANA time zone name. If null, the time zone is UTC.
 * @throws CRON_SCHEDULE_INVALID, also if the schedule has no fire time after `nowMs`; CRON_TIMEZONE_UNKNOWN
 */
export function readSchedule(schedule: string, timezone: string | null, nowMs: number): Schedule {
  const zone = timezone ?? 'UTC';
  if (!isTimeZone(zone)) throw runlakeError('CRON_TIMEZONE_UNKNOWN', { timezone: zone });
  const invalid = (reason: string) => runlakeError('CRON_SCHEDULE_INVALID', { schedule, reason });
  const fields = schedule.trim().split(/\s+/);
  if (fields.length !== 5) throw invalid(`it has ${schedule.trim() === '' ? 0 : fields.length} fields, not five`);
  // cron-parser accepts H as a random value.
  if (/(?:^|,)H/i.test(fields.join(','))) throw invalid('H is not supported');
  const text = fields.join(' ');
  const parsedFields = (() => {
    try {
      return CronExpressionParser.parse(text).fields;
    } catch (raw) {
      throw invalid((raw as Error).message);
    }
  })();
  if (!hasDate(parsedFields)) throw invalid('no date matches it');
  const isHourly = parsedFields.hour.values.length === hoursPerDay;
  const parsed: Schedule = {
    next: (afterMs) => findNextTime(text, zone, isHourly, afterMs),
    latest: (fromMs, untilMs) => findLatestTime(parsed, fromMs, untilMs),
  };
  if (parsed.next(nowMs) === undefined) throw invalid('no date matches it');
  return parsed;
}

/** Number of days in each month of a leap year. */
const daysInMonths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** Whether one of the months has one of the days of month. The iterator would search for centuries if none has. */
function hasDate({ month, dayOfMonth, dayOfWeek }: DayFields): boolean {
  if (!dayOfWeek.isWildcard || dayOfMonth.hasLastChar) return true;
  const maxDay = Math.max(...month.values.map((number) => daysInMonths[number - 1] as number));
  return dayOfMonth.values.some((day) => Number(day) <= maxDay);
}

function findNextTime(text: string, zone: string, isHourly: boolean, afterMs: number): number | undefined {
  const isNearChange = isNearClockChange(afterMs, zone);
  const startMs = getLocalTime(afterMs, zone) - (isNearChange ? maxClockChangeMs : 0);
  const first = findFirstAfter(text, startMs, afterMs, (clockMs) => findInstants(clockMs, zone).first);
  if (!isHourly || !isNearChange) return first;
  const last = findFirstAfter(text, startMs, afterMs, (clockMs) => findInstants(clockMs, zone).last);
  return first === undefined || last === undefined ? (first ?? last) : Math.min(first, last);
}

/** Iterates over the local times from `startMs` on. Returns the first time whose instant is after `afterMs`. */
function findFirstAfter(
  text: string,
  startMs: number,
  afterMs: number,
  toInstant: (clockMs: number) => number,
): number | undefined {
  // Iterate in UTC, which has no clock changes; `toInstant` converts to the zone.
  const times = CronExpressionParser.parse(text, { currentDate: new Date(startMs), tz: 'UTC' });
  for (;;) {
    let clockMs: number;
    try {
      clockMs = times.next().getTime();
    } catch {
      return undefined;
    }
    const instant = toInstant(clockMs);
    if (instant > afterMs) return instant;
  }
}

/**
 * Finds the last fire time. Searches windows of increasing length back from `untilMs`, to avoid iterating over all fire
 * times since `fromMs`.
 */
function findLatestTime(schedule: Schedule, fromMs: number, untilMs: number): number {
  for (const spanMs of [hourMs, dayMs, 32 * dayMs, 400 * dayMs]) {
    if (untilMs - spanMs <= fromMs) break;
    const found = schedule.next(untilMs - spanMs - 1);
    if (found !== undefined && found <= untilMs) return findLastTime(schedule, found, untilMs);
  }
  return findLastTime(schedule, fromMs, untilMs);
}

function findLastTime(schedule: Schedule, fromMs: number, untilMs: number): number {
  let last = fromMs;
  for (;;) {
    const next = schedule.next(last);
    if (next === undefined || next > untilMs) return last;
    last = next;
  }
}

/**
 * Converts between instants and local times of a time zone. A local time ("clock" in names) is represented by the epoch
 * milliseconds of the instant at which UTC clocks show the same time.
 *
 * When clocks are set forward, some local times do not exist. Such a time is moved forward by the size of the gap: if
 * 02:00 to 03:00 is skipped, 02:30 means 03:30. When clocks are set back, some local times occur twice.
 */

/** Formats by time zone name in lower case, because the runtime accepts names in any case. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** Returns true if the runtime supports this time zone name. Offsets such as `+02:00` are not names. */
function isTimeZone(name: string): boolean {
  if (!/^[A-Za-z][\w+/-]*$/.test(name)) return false;
  try {
    getFormat(name);
    return true;
  } catch {
    return false;
  }
}

function getLocalTime(instantMs: number, timeZone: string): number {
  return instantMs + getOffsetMs(instantMs, timeZone);
}

/** Returns the instants of a local time. `first` and `last` differ only if the local time occurs twice. */
function findInstants(clockMs: number, timeZone: string): { readonly first: number; readonly last: number } {
  // Assumes that no zone changes its clocks twice within two days.
  const [before, after] = [getOffsetMs(clockMs - dayMs, timeZone), getOffsetMs(clockMs + dayMs, timeZone)];
  const found = [clockMs - before, clockMs - after].filter((instant) => getLocalTime(instant, timeZone) === clockMs);
  if (found.length === 0) return { first: clockMs - before, last: clockMs - before };
  return { first: Math.min(...found), last: Math.max(...found) };
}

/**
 * Returns true if the UTC offset of the zone four hours before or after an instant differs from the offset at the
 * instant.
 */
function isNearClockChange(instantMs: number, timeZone: string): boolean {
  const offset = getOffsetMs(instantMs, timeZone);
  return [-4, 4].some((hours) => getOffsetMs(instantMs + hours * hourMs, timeZone) !== offset);
}

/** Returns the UTC offset of the zone at an instant, in milliseconds; positive east of UTC. */
function getOffsetMs(instantMs: number, timeZone: string): number {
  if (timeZone === 'UTC') return 0;
  const text = getFormat(timeZone).format(instantMs);
  const [, sign, hours, minutes, seconds] = /GMT(?:([+-])(\d\d):(\d\d)(?::(\d\d))?)?$/.exec(text) ?? [];
  const size = Number(hours ?? 0) * hourMs + Number(minutes ?? 0) * 60_000 + Number(seconds ?? 0) * 1_000;
  return sign === '-' ? -size : size;
}

function getFormat(timeZone: string): Intl.DateTimeFormat {
  const name = timeZone.toLowerCase();
  let format = formats.get(name);
  if (format === undefined) {
    format = new Intl.DateTimeFormat('en-US', { timeZone, timeZoneName: 'longOffset' });
    formats.set(name, format);
  }
  return format;
}
