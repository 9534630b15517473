import { setTimeout as delay } from 'node:timers/promises';

const pollMs = 10;

/** Waits until `isGone` returns true. @returns false after the timeout. */
export async function untilGone(isGone: () => boolean, withinMs: number): Promise<boolean> {
  for (const deadlineMs = Date.now() + withinMs; ; await delay(pollMs)) {
    if (isGone()) return true;
    if (Date.now() >= deadlineMs) return false;
  }
}
