import type { Cron } from './cron.ts';
import { readSchedule } from './schedule.ts';

/**
 * The next fire time of a cron after an instant, in ISO 8601; null if it is disabled or ends before.
 *
 * @throws CRON_SCHEDULE_INVALID, CRON_TIMEZONE_UNKNOWN
 */
export function nextRunDate(
  { schedule, timezone, end_time, enabled }: Pick<Cron, 'schedule' | 'timezone' | 'end_time' | 'enabled'>,
  afterMs: number,
): string | null {
  const next = readSchedule(schedule, timezone, afterMs).next(afterMs);
  if (!enabled || next === undefined || (end_time !== null && next > Date.parse(end_time))) return null;
  return new Date(next).toISOString();
}
