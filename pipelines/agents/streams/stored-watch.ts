import { setTimeout as pause } from 'node:timers/promises';
import type { EventLog, LogPosition } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';

const pollIntervalMs = 100;

/** Tracks the position of the log up to which events are stored in ClickHouse. Concurrent identical queries are coalesced. */
export class StoredWatch {
  readonly #log: Pick<EventLog, 'isStored'>;
  readonly #known = new Map<string, number>();
  readonly #pending = new Map<string, Promise<boolean>>();

  constructor(log: Pick<EventLog, 'isStored'>) {
    this.#log = log;
  }

  /**
   * Waits at most `timeoutMs` until all events before `position` are stored. Retries when the query fails.
   *
   * @returns whether they are stored.
   */
  async reached(position: LogPosition, timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    const startedAtMs = performance.now();
    while (!(this.#isKnown(position) || (await this.#query(position)))) {
      if (signal.aborted || performance.now() - startedAtMs > timeoutMs) return false;
      await pause(pollIntervalMs);
    }
    return true;
  }

  #isKnown(position: LogPosition): boolean {
    return Object.entries(position).every(([partition, end]) => end <= (this.#known.get(partition) ?? 0));
  }

  #query(position: LogPosition): Promise<boolean> {
    const key = JSON.stringify(position);
    const pending = this.#pending.get(key);
    if (pending) return pending;
    const answer = this.#log
      .isStored(streamEvents, position)
      .then((stored) => {
        if (stored) this.#remember(position);
        return stored;
      })
      .catch(() => false)
      .finally(() => this.#pending.delete(key));
    this.#pending.set(key, answer);
    return answer;
  }

  #remember(position: LogPosition): void {
    for (const [partition, end] of Object.entries(position)) {
      this.#known.set(partition, Math.max(end, this.#known.get(partition) ?? 0));
    }
  }
}
