import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';

const minPauseMs = 50;
const maxPauseMs = 1_000;

/** Exponential backoff for publishing: pauses double, and retries end `ms` milliseconds after the construction. */
export class RetryBackoff {
  readonly #endsAtMs: number;
  #pauseMs = minPauseMs;

  constructor(ms: number) {
    this.#endsAtMs = performance.now() + ms;
  }

  /** Pauses before the next try. @returns false at once if `reason` is not retryable or the deadline would pass. */
  async retryAfter(reason: unknown): Promise<boolean> {
    const isRetryable = isRunlakeError(reason) && reason.class === 'transient' && reason.code !== 'DRAINING';
    if (!isRetryable || performance.now() + this.#pauseMs > this.#endsAtMs) return false;
    await pause(this.#pauseMs);
    this.#pauseMs = Math.min(this.#pauseMs * 2, maxPauseMs);
    return true;
  }
}

/**
 * Publishes stream events and retries transient errors of the log for at most `retryTimeoutMs`. Readers deduplicate
 * repeated events.
 *
 * @throws errors of the log; at once if they are not transient.
 */
export async function publishPatiently(
  log: Pick<EventLog, 'publish'>,
  messages: readonly LogMessage[],
  retryTimeoutMs: number,
): Promise<void> {
  for (const backoff = new RetryBackoff(retryTimeoutMs); ; ) {
    try {
      return await log.publish(streamEvents, messages);
    } catch (error) {
      if (!(await backoff.retryAfter(error))) throw error;
    }
  }
}
