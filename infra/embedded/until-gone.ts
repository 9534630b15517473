import { setTimeout as delay } from 'node:timers/promises';

const pollMs = 10;

/** Waits until `isGone` says so. @returns false where it did not within the time. */
export async function untilGone(isGone: () => boolean, withinMs: number): Promise<boolean> {
  for (const deadlineMs = Date.now() + withinMs; ; await delay(pollMs)) {
    if (isGone()) return true;
    if (Date.now() >= deadlineMs) return false;
  }
}
