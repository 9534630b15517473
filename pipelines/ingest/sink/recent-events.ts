import { hash } from 'node:crypto';
import { RecentMap } from '../../../infra/cache/recent-map.ts';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { readReceivedAtMicros, readWithoutAcceptance } from '../run-event/run-event.ts';

/** Minimum number of events that a process remembers. A process holds at most twice as many, in 10 MB. */
const minRememberedEvents = 100_000;
/** Size of a digest in 32-bit words. 160 bits make collisions of different events practically impossible. */
const digestWords = 5;
/**
 * Maximum time between two acceptances of the same event; it is longer than the time for which clients retry a request.
 */
export const repeatWindowMicros = 10 * 60_000_000;

interface HasRecord {
  readonly record: LogRecord;
  /** The record as it was in the log, if fields of `record` were overwritten. */
  readonly original?: LogRecord;
}

/** The events of a batch, without repeats. */
export interface CheckedEvents<R> {
  readonly fresh: readonly R[];
  readonly repeats: number;
  /**
   * Remembers the stored events. Call this method after `fresh` has been stored, with the records that ClickHouse
   * refused.
   */
  remember(refused: ReadonlySet<LogRecord>): void;
}

/**
 * Detects duplicates of stored events. A client that loses the response sends its request again; if the sink stored the
 * event again, it would override a newer patch of the run.
 *
 * Invariant: an event is dropped only if an event with the same bytes (except for the fields that the API sets on
 * acceptance) was stored from a smaller offset of the same partition, with a different acceptance time within the
 * window. Redelivered and replayed events have the same acceptance time and are kept, so a retried insert batch has the
 * same rows.
 *
 * The remembered events are lost when the process ends, and do not move with a partition. A duplicate that arrives
 * afterwards is stored as a new event.
 */
export class RecentEvents {
  readonly #accepted: RecentMap;

  constructor(minEvents = minRememberedEvents) {
    this.#accepted = createMap(minEvents);
  }

  /**
   * Removes repeated events.
   *
   * @param events Events of one partition, in the order of the log.
   */
  removeRepeats<R extends HasRecord>(events: readonly R[]): CheckedEvents<R> {
    const digests = new Uint32Array(events.length * digestWords);
    const batchEvents = createMap(Math.max(1, events.length));
    const fresh: R[] = [];
    for (const event of events) {
      const { value, partition, offset } = event.original ?? event.record;
      const receivedAtMicros = readReceivedAtMicros(value);
      if (receivedAtMicros !== undefined) {
        const at = fresh.length * digestWords;
        writeDigest(value, partition, digests, at);
        const known = batchEvents.get(digests, at) === undefined ? this.#accepted : batchEvents;
        if (isRepeat(known, digests, at, offset, receivedAtMicros)) continue;
        batchEvents.set(digests, at, offset, receivedAtMicros);
      }
      fresh.push(event);
    }
    return {
      fresh,
      repeats: events.length - fresh.length,
      remember: (refused) => {
        for (const [index, event] of fresh.entries()) {
          const record = event.original ?? event.record;
          const receivedAtMicros = readReceivedAtMicros(record.value);
          if (receivedAtMicros === undefined || refused.has(record)) continue;
          this.#accepted.set(digests, index * digestWords, record.offset, receivedAtMicros);
        }
      },
    };
  }
}

/** Creates a map from the digest of an event to its offset and its acceptance time. */
function createMap(minEntries: number): RecentMap {
  return new RecentMap({ minEntries, wordsPerKey: digestWords, numbersPerValue: 2 });
}

function writeDigest(value: Buffer, partition: number, digests: Uint32Array, at: number): void {
  // A digest in text form needs no separate buffer.
  const digest = readWithoutAcceptance(value, partition, (bytes) => hash('sha1', bytes, 'binary'));
  for (let word = 0; word < digestWords; word++) {
    const from = word * 4;
    digests[at + word] =
      digest.charCodeAt(from) |
      (digest.charCodeAt(from + 1) << 8) |
      (digest.charCodeAt(from + 2) << 16) |
      (digest.charCodeAt(from + 3) << 24);
  }
}

function isRepeat(
  known: RecentMap,
  digests: Uint32Array,
  at: number,
  offset: number,
  receivedAtMicros: number,
): boolean {
  const earlier = known.get(digests, at);
  if (earlier === undefined || earlier >= offset) return false;
  const differenceMicros = Math.abs(receivedAtMicros - (known.get(digests, at, 1) as number));
  return differenceMicros > 0 && differenceMicros <= repeatWindowMicros;
}
