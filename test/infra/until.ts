import { setTimeout as pause } from 'node:timers/promises';

/** The pause between two polls is a tenth of the time that has passed, within these bounds. */
const minPauseMs = 10;
const maxPauseMs = 100;

/**
 * Polls until `holds` returns true. The pauses become longer over time, because most polls query the servers that the
 * test waits for, and many tests wait concurrently.
 *
 * @throws after `deadlineMs`, with `what` in the message.
 */
export async function until(what: string, holds: () => Promise<boolean> | boolean, deadlineMs = 30_000): Promise<void> {
  const start = performance.now();
  while (!(await holds())) {
    const waitedMs = performance.now() - start;
    if (waitedMs > deadlineMs) throw new Error(`waited ${deadlineMs} ms for: ${what}`);
    await pause(Math.min(maxPauseMs, Math.max(minPauseMs, waitedMs / 10)));
  }
}
