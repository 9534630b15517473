import { type logCreator, logLevel } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';

/** What a line of the client may carry into our log; other fields can hold requests, stacks and objects of its own. */
const kept = ['broker', 'groupId', 'memberId', 'topic', 'partition', 'retryCount', 'retryTime'] as const;
const repeatAfterMs = 30_000;
const remembered = 200;

/**
 * Brings the client's lines into our log: its errors as warnings, because whatever they mean for us is said by us; the rest
 * as debugging, and so is all that a client says after it was cut off. While a broker is away it says the same at every attempt: a line comes at most each half minute.
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
      if (lastAtMs.size >= remembered) lastAtMs.clear();
      lastAtMs.set(text, now);
      const fields = Object.fromEntries(
        kept.filter((name) => log[name] !== undefined).map((name) => [name, log[name]]),
      );
      if (level === logLevel.ERROR && !isFenced()) logger.warn(fields, `kafka client: ${message}`.slice(0, 500));
      else logger.debug(fields, `kafka client: ${message}`.slice(0, 500));
    };
}

function withoutNumbers(message: string): string {
  return message.replace(/\d+/g, '0');
}
