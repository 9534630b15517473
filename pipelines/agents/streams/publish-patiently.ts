import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';

const firstPauseMs = 50;
const longestPauseMs = 1_000;

/** How long a log that cannot take events now is tried again: pauses that grow, together at most `ms` from its making on. */
export class Patience {
  readonly #endsAtMs: number;
  #pauseMs = firstPauseMs;

  constructor(ms: number) {
    this.#endsAtMs = performance.now() + ms;
  }

  /** Pauses. @returns false at once where another try would fail like the one that failed with `reason`, or comes too late. */
  async again(reason: unknown): Promise<boolean> {
    const mayPass = isRunlakeError(reason) && reason.class === 'transient' && reason.code !== 'DRAINING';
    if (!mayPass || performance.now() + this.#pauseMs > this.#endsAtMs) return false;
    await pause(this.#pauseMs);
    this.#pauseMs = Math.min(this.#pauseMs * 2, longestPauseMs);
    return true;
  }
}

/**
 * Publishes stream events, again where the log cannot take them now, for at most `patienceMs`. Repeats are the same event to
 * every reader.
 * @throws what the log throws, at once where the next try would fail too.
 */
export async function publishPatiently(
  log: Pick<EventLog, 'publish'>,
  messages: readonly LogMessage[],
  patienceMs: number,
): Promise<void> {
  for (const patience = new Patience(patienceMs); ; ) {
    try {
      return await log.publish(streamEvents, messages);
    } catch (error) {
      if (!(await patience.again(error))) throw error;
    }
  }
}
