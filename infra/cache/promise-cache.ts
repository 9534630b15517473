import { LRUCache } from 'lru-cache';
import { runDetached } from '../fairness/tenant-context.ts';

/**
 * Remembers the answers of a slow function for a while, and asks once where many ask at the same moment.
 *
 * Invariant: after {@link PromiseCache.forget} or {@link PromiseCache.clear} nobody gets an answer that was asked for before.
 * It holds because the promise itself is what is kept: one under way is dropped with its entry. An answer's age counts from the
 * moment it was asked for. Failures and `undefined` are not kept.
 */
export class PromiseCache<Value> {
  readonly #kept: LRUCache<string, Promise<Value | undefined>>;

  constructor(options: { readonly max: number; readonly ttlMs: number }) {
    this.#kept = new LRUCache({ max: options.max, ttl: options.ttlMs });
  }

  get(key: string, ask: () => Promise<Value | undefined>): Promise<Value | undefined> {
    const kept = this.#kept.get(key);
    if (kept !== undefined) return kept;
    // Others may wait for the same answer: a client that disconnects must not abort it.
    const asked = runDetached(ask);
    this.#kept.set(key, asked);
    const drop = () => {
      if (this.#kept.peek(key) === asked) this.#kept.delete(key);
    };
    asked.then((value) => value === undefined && drop(), drop);
    return asked;
  }

  forget(key: string): void {
    this.#kept.delete(key);
  }

  clear(): void {
    this.#kept.clear();
  }
}
