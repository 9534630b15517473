import type { Config } from '../../../infra/config/settings.ts';
import { earliestKeyTimeMicros } from '../../../infra/event-log/fixed-fields.ts';
import { formatTime } from '../run-event/times.ts';
import type { RunDraft } from './draft.ts';

export type TimeLimits = Pick<Config, 'maxRunAgeDays' | 'maxRunAheadHours'>;

/** Stock SDKs write a run's end with millisecond digits and its start with microseconds. */
const roundingMicros = 1_000;

/** What the tables can hold: 1970 to 2261. */
export const latestStorableMicros = 9_180_000_000_000_000;

/** Says which time of a run is out of range or out of order, or nothing. */
export function timesFault(draft: RunDraft, nowMicros: number, limits: TimeLimits): string | undefined {
  const earliest = nowMicros - limits.maxRunAgeDays * 86_400_000_000;
  const latest = nowMicros + limits.maxRunAheadHours * 3_600_000_000;
  const { startedAtMicros, endedAtMicros, firstTokenTimeMicros } = draft.values;
  // The age of a run is that of its start_time. Times in dotted_order may be older: some clients write it by hand, and a patch
  // often has nothing else.
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
      `to ${formatTime(latest)} (RUNLAKE_MAX_RUN_AHEAD_HOURS)`
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
