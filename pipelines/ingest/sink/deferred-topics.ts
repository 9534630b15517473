import type { Database } from '../../../infra/postgres/pool.ts';
import { hasDeferred } from './deferred-events.ts';
/**
 * Remembers which topics have deferred events. Most have none, so this saves a query per batch.
 * Partitions are handled concurrently: an answer is discarded if another partition deferred an event while the query ran.
 */
export class DeferredTopics {
  readonly #database: Database;
  readonly #known = new Map<string, boolean>();
  readonly #changes = new Map<string, number>();

  constructor(database: Database) {
    this.#database = database;
  }

  /** Whether `topic` has deferred events; queries Postgres unless the answer is known. */
  async has(topic: string): Promise<boolean> {
    return this.#known.get(topic) ?? this.refresh(topic);
  }

  async refresh(topic: string): Promise<boolean> {
    const before = this.#changes.get(topic);
    const found = await hasDeferred(this.#database, topic);
    if (this.#changes.get(topic) === before) this.#known.set(topic, found);
    return found;
  }

  /** Call this after deferring events: a query that ran before or meanwhile may not have seen them. */
  add(topic: string): void {
    this.#change(topic);
    this.#known.set(topic, true);
  }

  /** Discards what is known of `topic`: another process may have deferred events of it. */
  forget(topic: string): void {
    this.#change(topic);
    this.#known.delete(topic);
  }

  #change(topic: string): void {
    this.#changes.set(topic, (this.#changes.get(topic) ?? 0) + 1);
  }
}
