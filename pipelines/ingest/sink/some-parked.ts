import type { Database } from '../../../infra/postgres/pool.ts';
import { anyParked } from './parked-events.ts';

/**
 * Remembers for which topics no event is parked at all, which is the usual case and saves a question for every batch.
 * Partitions are handled side by side: an answer that was on its way while somebody parked an event is not remembered.
 */
export class SomeParked {
  readonly #database: Database;
  readonly #known = new Map<string, boolean>();
  readonly #changes = new Map<string, number>();

  constructor(database: Database) {
    this.#database = database;
  }

  async any(topic: string): Promise<boolean> {
    return this.#known.get(topic) ?? this.askAgain(topic);
  }

  async askAgain(topic: string): Promise<boolean> {
    const before = this.#changes.get(topic);
    const found = await anyParked(this.#database, topic);
    if (this.#changes.get(topic) === before) this.#known.set(topic, found);
    return found;
  }

  /** To be called once events are parked: whoever asked before that, or meanwhile, may have seen none. */
  expect(topic: string): void {
    this.#change(topic);
    this.#known.set(topic, true);
  }

  /** Others may have parked events. */
  forget(topic: string): void {
    this.#change(topic);
    this.#known.delete(topic);
  }

  #change(topic: string): void {
    this.#changes.set(topic, (this.#changes.get(topic) ?? 0) + 1);
  }
}
