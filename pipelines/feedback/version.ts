import type { FeedbackEvent } from './feedback-event.ts';

/**
 * Version of the event after `last`, in microseconds since 1970: the current time, but always later than `last`, even
 * if the clock of the process that wrote `last` is ahead.
 */
export function versionAfter(last: FeedbackEvent | undefined): number {
  return Math.max(Date.now() * 1_000, (last?.receivedAtMicros ?? 0) + 1);
}
