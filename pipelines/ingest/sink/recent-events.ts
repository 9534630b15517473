import { hash } from 'node:crypto';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { receivedAtMicrosOf, withoutAcceptance } from '../run-event/key-fields.ts';

/** Events that a process remembers at least; at most twice as many, which take about 30 MB. */
const minRememberedEvents = 100_000;
/** Time between two acceptances of one event: longer than clients retry a request. */
export const repeatWindowMicros = 10 * 60_000_000;

interface HasRecord {
  readonly record: LogRecord;
  /** As it came, if fields of `record` were written over. */
  readonly came?: LogRecord;
}

interface Accepted {
  readonly offset: number;
  readonly receivedAtMicros: number;
}

/** Events of a batch without the repeats among them. */
export interface CheckedEvents<R> {
  readonly fresh: readonly R[];
  readonly repeats: number;
  /** To be called once `fresh` is stored, except for `refused`. */
  remember(refused: ReadonlySet<LogRecord>): void;
}

/**
 * Recognises an event that repeats a stored one: a client that lost the answer sends its request again, and stored again its event
 * would win over a newer patch of the run.
 *
 * Invariant: an event is dropped only if the same bytes, except for what each acceptance sets, are stored from a smaller offset of the
 * same partition, accepted at another time within the window. So a redelivered event is never dropped, which would change the rows of an
 * insert batch that is repeated, and neither is a dead-letter record that an operator replays.
 *
 * What is remembered is lost with the process, and stays behind when the partition moves to another one: a repeat is then stored as a
 * new event.
 */
export class RecentEvents {
  readonly #minEvents: number;
  // Two generations bound the count without a linked list.
  #young = new Map<string, Accepted>();
  #old = new Map<string, Accepted>();

  constructor(minEvents = minRememberedEvents) {
    this.#minEvents = minEvents;
  }

  /** @param events of one partition, in the order of the log. */
  withoutRepeats<R extends HasRecord>(events: readonly R[]): CheckedEvents<R> {
    const found = new Map<string, Accepted & { readonly record: LogRecord }>();
    const fresh: R[] = [];
    for (const event of events) {
      const record = event.came ?? event.record;
      const { value, partition, offset } = record;
      const receivedAtMicros = receivedAtMicrosOf(value);
      if (receivedAtMicros !== undefined) {
        // 160 bits: two different events never meet by chance.
        const digest = withoutAcceptance(value, partition, (bytes) => hash('sha1', bytes, 'base64'));
        const accepted = { offset, receivedAtMicros, record };
        if (isRepeat(accepted, found.get(digest) ?? this.#young.get(digest) ?? this.#old.get(digest))) continue;
        found.set(digest, accepted);
      }
      fresh.push(event);
    }
    return {
      fresh,
      repeats: events.length - fresh.length,
      remember: (refused) => {
        for (const [digest, { record, offset, receivedAtMicros }] of found) {
          if (!refused.has(record)) this.#remember(digest, { offset, receivedAtMicros });
        }
      },
    };
  }

  #remember(digest: string, accepted: Accepted): void {
    if (this.#young.size >= this.#minEvents) {
      this.#old = this.#young;
      this.#young = new Map();
    }
    this.#young.set(digest, accepted);
  }
}

function isRepeat({ offset, receivedAtMicros }: Accepted, earlier: Accepted | undefined): boolean {
  if (earlier === undefined || earlier.offset >= offset) return false;
  const apartMicros = Math.abs(receivedAtMicros - earlier.receivedAtMicros);
  return apartMicros > 0 && apartMicros <= repeatWindowMicros;
}
