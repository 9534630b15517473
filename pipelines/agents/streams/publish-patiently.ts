import { setTimeout as pause } from 'node:timers/promises';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';

const firstPauseMs = 50;
const longestPauseMs = 1_000;

/**
 * Publishes stream events, again where the log cannot take them now, for at most `patienceMs`. Repeats are the same event to
 * every reader.
 * @throws what the log throws, at once where the next try would fail too.
 */
export async function publishPatiently(
  log: Pick<EventLog, 'publish'>,
  messages: readonly LogMessage[],
  patienceMs: number,
  onPlaced?: () => void,
): Promise<void> {
  const startedAtMs = performance.now();
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(pauseMs * 2, longestPauseMs)) {
    try {
      return await log.publish(streamEvents, messages, onPlaced);
    } catch (error) {
      const mayPass = isRunlakeError(error) && error.class === 'transient' && error.code !== 'DRAINING';
      if (!mayPass || performance.now() - startedAtMs + pauseMs > patienceMs) throw error;
      await pause(pauseMs);
    }
  }
}
