import type { Config } from '../../../infra/config/settings.ts';
import { earliestKeyTimeMicros } from '../../../infra/event-log/fixed-fields.ts';
import { formatTime } from '../run-event/times.ts';
import type { RunDraft } from './draft.ts';

export type TimeLimits = Pick<Config, 'maxRunAgeDays'>;

/** How far in the future an accepted start time may lie: clients with wrong time zones are at most this far off. */
export const maxRunAheadHours = 24;

/** Stock SDKs write the end of a run with milliseconds and its start with microseconds. */
const roundingMicros = 1_000;

/** Latest time that the tables can hold; the range starts in 1970 and ends in 2261. */
export const latestStorableMicros = 9_180_000_000_000_000;

/** Returns which time of a run is out of range or out of order, or undefined. */
export function timesError(draft: RunDraft, nowMicros: number, limits: TimeLimits): string | undefined {
  const earliest = nowMicros - limits.maxRunAgeDays * 86_400_000_000;
  const latest = nowMicros + maxRunAheadHours * 3_600_000_000;
  const { startedAtMicros, endedAtMicros, firstTokenTimeMicros } = draft.values;
  // start_time decides the age of a run. Times in dotted_order may be older: some clients write them by hand, and a
  // patch often has no other time.
  const earliestKey = startedAtMicros !== undefined || draft.kind === 'patch' ? earliestKeyTimeMicros : earliest;
  for (const [name, micros, from] of [
    ['start time', draft.startTimeMicros, earliestKey],
    ['start time of the trace', draft.traceTimeMicros, earliestKey],
    ['start_time', startedAtMicros, earliest],
  ] as const) {
    if (micros === undefined || (micros >= from && micros <= latest)) continue;
    const limit = from === earliest ? ' (RUNLAKE_MAX_RUN_AGE_DAYS)' : '';
    return (
      `the ${name} ${formatTime(micros)} is outside the accepted range, ${formatTime(from)}${limit} ` +
      `to ${formatTime(latest)}`
    );
  }
  for (const [name, micros] of [
    ['end_time', endedAtMicros],
    ['time of the first token', firstTokenTimeMicros],
  ] as const) {
    if (micros === undefined || (micros >= 0 && micros <= latestStorableMicros)) continue;
    return `the ${name} is outside the years 1970 to 2260`;
  }
  const started = startedAtMicros ?? draft.startTimeMicros;
  if (endedAtMicros !== undefined && endedAtMicros + roundingMicros < started) {
    return `end_time ${formatTime(endedAtMicros)} is before start_time ${formatTime(started)}`;
  }
  return undefined;
}
