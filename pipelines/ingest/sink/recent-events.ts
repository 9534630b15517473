import { hash } from 'node:crypto';
import { RecentMap } from '../../../infra/cache/recent-map.ts';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { readReceivedAtMicros, withoutAcceptance } from '../run-event/run-event.ts';

/** Minimum number of events that a process remembers. It holds at most twice as many, about 30 MB. */
const minRememberedEvents = 100_000;
/** Maximum time between two acceptances of the same event: longer than clients retry a request. */
export const repeatWindowMicros = 10 * 60_000_000;

interface HasRecord {
  readonly record: LogRecord;
  /** The record as it was in the log, if fields of `record` were overwritten. */
  readonly original?: LogRecord;
}

interface AcceptedEvent {
  readonly offset: number;
  readonly receivedAtMicros: number;
}

/** The events of a batch, without repeats. */
export interface CheckedEvents<R> {
  readonly fresh: readonly R[];
  readonly repeats: number;
  /** Call this after `fresh` is stored; pass the records that ClickHouse refused. */
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
 * The memory is lost when the process ends and does not move with a partition. A duplicate after that is stored as a
 * new event.
 */
export class RecentEvents {
  readonly #accepted: RecentMap<AcceptedEvent>;

  constructor(minEvents = minRememberedEvents) {
    this.#accepted = new RecentMap(minEvents);
  }

  /** @param events of one partition, in the order of the log. */
  withoutRepeats<R extends HasRecord>(events: readonly R[]): CheckedEvents<R> {
    const found = new Map<string, AcceptedEvent & { readonly record: LogRecord }>();
    const fresh: R[] = [];
    for (const event of events) {
      const record = event.original ?? event.record;
      const { value, partition, offset } = record;
      const receivedAtMicros = readReceivedAtMicros(value);
      if (receivedAtMicros !== undefined) {
        // 160 bits make collisions of different events practically impossible.
        const digest = withoutAcceptance(value, partition, (bytes) => hash('sha1', bytes, 'base64'));
        const accepted = { offset, receivedAtMicros, record };
        if (isRepeat(accepted, found.get(digest) ?? this.#accepted.get(digest))) continue;
        found.set(digest, accepted);
      }
      fresh.push(event);
    }
    return {
      fresh,
      repeats: events.length - fresh.length,
      remember: (refused) => {
        for (const [digest, { record, offset, receivedAtMicros }] of found) {
          if (!refused.has(record)) this.#accepted.set(digest, { offset, receivedAtMicros });
        }
      },
    };
  }
}

function isRepeat({ offset, receivedAtMicros }: AcceptedEvent, earlier: AcceptedEvent | undefined): boolean {
  if (earlier === undefined || earlier.offset >= offset) return false;
  const apartMicros = Math.abs(receivedAtMicros - earlier.receivedAtMicros);
  return apartMicros > 0 && apartMicros <= repeatWindowMicros;
}
