import type { FeedbackEvent } from './feedback-event.ts';

/**
 * When the event after `last` counts as received, in microseconds since 1970: now, but always after it, also where `last` was
 * written by a process whose clock is ahead of ours.
 */
export function versionAfter(last: FeedbackEvent | undefined): number {
  return Math.max(Date.now() * 1_000, (last?.receivedAtMicros ?? 0) + 1);
}
