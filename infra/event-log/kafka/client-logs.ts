import { type logCreator, logLevel } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';

/** Fields of the client's log lines that are logged; others may contain requests, stack traces and internal objects. */
const loggedFields = ['broker', 'groupId', 'memberId', 'topic', 'partition', 'retryCount', 'retryTime'] as const;
const repeatAfterMs = 30_000;
const maxRemembered = 200;

/**
 * Forwards the client's log lines. Its errors become warnings, because Runlake logs their effect itself. All other
 * lines, and every line of a fenced client, become debug lines. While a broker is down the client repeats its lines at
 * each attempt, so the same line is logged at most once in 30 seconds.
 */
export function clientLogs(logger: Logger, isFenced: () => boolean): logCreator {
  const lastAtMs = new Map<string, number>();
  return () =>
    ({ namespace, level, log }) => {
      const { message } = log;
      const text = `${namespace}: ${withoutNumbers(message)}`;
      const now = performance.now();
      const last = lastAtMs.get(text);
      if (last !== undefined && now - last < repeatAfterMs) return;
      if (lastAtMs.size >= maxRemembered) lastAtMs.clear();
      lastAtMs.set(text, now);
      const fields = Object.fromEntries(
        loggedFields.filter((name) => log[name] !== undefined).map((name) => [name, log[name]]),
      );
      if (level === logLevel.ERROR && !isFenced()) logger.warn(fields, `kafka client: ${message}`.slice(0, 500));
      else logger.debug(fields, `kafka client: ${message}`.slice(0, 500));
    };
}

function withoutNumbers(message: string): string {
  return message.replace(/\d+/g, '0');
}
