import { CronExpressionParser } from 'cron-parser';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { clockAt, instantsOf, isNearChange, isTimeZone } from './local-time.ts';

/**
 * When a cron is due: five fields (minute, hour, day of the month, month, day of the week; either day is enough where both are
 * restricted), read by clocks of a zone. A time that clocks leave out counts as that much later. Of a time that they show twice the
 * first counts; both do where every hour is due.
 */
export interface Schedule {
  /** The first time after an instant, in milliseconds since 1970; undefined where there is none. */
  next(afterMs: number): number | undefined;
  /** The last time up to an instant of those from `fromMs`, itself one of them. */
  latest(fromMs: number, untilMs: number): number;
}

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const everyHour = 24;
/** The widest change of clocks, and a bit. */
const changeMs = 4 * hourMs;

/**
 * @param timezone A name of the IANA database; null: UTC.
 * @throws CRON_SCHEDULE_INVALID, also for a schedule that never comes; CRON_TIMEZONE_UNKNOWN
 */
export function readSchedule(schedule: string, timezone: string | null, nowMs: number): Schedule {
  const zone = timezone ?? 'UTC';
  if (!isTimeZone(zone)) throw fault('CRON_TIMEZONE_UNKNOWN', { timezone: zone });
  const invalid = (reason: string) => fault('CRON_SCHEDULE_INVALID', { schedule, reason });
  const fields = schedule.trim().split(/\s+/);
  if (fields.length !== 5) throw invalid(`it has ${schedule.trim() === '' ? 0 : fields.length} fields, not five`);
  // What the parser takes for a random number.
  if (/(?:^|,)H/i.test(fields.join(','))) throw invalid('H is not a value of any field');
  const text = fields.join(' ');
  const isHourly = (() => {
    try {
      return CronExpressionParser.parse(text).fields.hour.values.length === everyHour;
    } catch (raw) {
      throw invalid((raw as Error).message);
    }
  })();
  const made: Schedule = {
    next: (afterMs) => nextTime(text, zone, isHourly, afterMs),
    latest: (fromMs, untilMs) => latestTime(made, fromMs, untilMs),
  };
  if (made.next(nowMs) === undefined) throw invalid('no day is like that');
  return made;
}

function nextTime(text: string, zone: string, isHourly: boolean, afterMs: number): number | undefined {
  const isNear = isNearChange(afterMs, zone);
  const startMs = clockAt(afterMs, zone) - (isNear ? changeMs : 0);
  const first = firstAfter(text, startMs, afterMs, (clockMs) => instantsOf(clockMs, zone).first);
  if (!isHourly || !isNear) return first;
  const last = firstAfter(text, startMs, afterMs, (clockMs) => instantsOf(clockMs, zone).last);
  return first === undefined || last === undefined ? (first ?? last) : Math.min(first, last);
}

/** Goes through the times on clocks from `startMs` on, up to one whose instant comes after `afterMs`. */
function firstAfter(
  text: string,
  startMs: number,
  afterMs: number,
  instantOf: (clockMs: number) => number,
): number | undefined {
  // On clocks that are never changed: ours are put on afterwards.
  const times = CronExpressionParser.parse(text, { currentDate: new Date(startMs), tz: 'UTC' });
  for (;;) {
    let clockMs: number;
    try {
      clockMs = times.next().getTime();
    } catch {
      return undefined;
    }
    const instant = instantOf(clockMs);
    if (instant > afterMs) return instant;
  }
}

/** Looks at ever longer times back, so that not every time of a long while is gone through. */
function latestTime(schedule: Schedule, fromMs: number, untilMs: number): number {
  for (const spanMs of [hourMs, dayMs, 32 * dayMs, 400 * dayMs]) {
    if (untilMs - spanMs <= fromMs) break;
    const found = schedule.next(untilMs - spanMs - 1);
    if (found !== undefined && found <= untilMs) return lastOf(schedule, found, untilMs);
  }
  return lastOf(schedule, fromMs, untilMs);
}

function lastOf(schedule: Schedule, fromMs: number, untilMs: number): number {
  let last = fromMs;
  for (;;) {
    const next = schedule.next(last);
    if (next === undefined || next > untilMs) return last;
    last = next;
  }
}
