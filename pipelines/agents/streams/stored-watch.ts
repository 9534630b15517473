import { setTimeout as pause } from 'node:timers/promises';
import type { EventLog, LogPosition } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';

const askEveryMs = 100;

/** Knows up to where the events of the log are stored. Readers that ask at the same time share the question. */
export class StoredWatch {
  readonly #log: Pick<EventLog, 'stored'>;
  readonly #known = new Map<string, number>();
  readonly #asking = new Map<string, Promise<boolean>>();

  constructor(log: Pick<EventLog, 'stored'>) {
    this.#log = log;
  }

  /**
   * Waits until everything before `position` is stored, at most `patienceMs`. A log that cannot be asked is asked again.
   * @returns whether it is.
   */
  async reached(position: LogPosition, patienceMs: number, signal: AbortSignal): Promise<boolean> {
    const startedAtMs = performance.now();
    while (!(this.#knows(position) || (await this.#ask(position)))) {
      if (signal.aborted || performance.now() - startedAtMs > patienceMs) return false;
      await pause(askEveryMs);
    }
    return true;
  }

  #knows(position: LogPosition): boolean {
    return Object.entries(position).every(([partition, end]) => end <= (this.#known.get(partition) ?? 0));
  }

  #ask(position: LogPosition): Promise<boolean> {
    const question = JSON.stringify(position);
    const asked = this.#asking.get(question);
    if (asked) return asked;
    const answer = this.#log
      .stored(streamEvents, position)
      .then((stored) => {
        if (stored) this.#remember(position);
        return stored;
      })
      .catch(() => false)
      .finally(() => this.#asking.delete(question));
    this.#asking.set(question, answer);
    return answer;
  }

  #remember(position: LogPosition): void {
    for (const [partition, end] of Object.entries(position)) {
      this.#known.set(partition, Math.max(end, this.#known.get(partition) ?? 0));
    }
  }
}
