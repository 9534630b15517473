import { LRUCache } from 'lru-cache';
import { runDetached } from '../fairness/tenant-context.ts';

/**
 * Caches the results of a slow function, and coalesces concurrent calls.
 *
 * Invariant: after {@link PromiseCache.forget} or {@link PromiseCache.clear}, no caller gets a result that was
 * requested before the call. This holds because the cache stores promises, so that a pending result is removed together
 * with its entry. The age of a result is measured from the time of the request. Errors and `undefined` are not cached.
 */
export class PromiseCache<Value> {
  readonly #kept: LRUCache<string, Promise<Value | undefined>>;

  /** @param options Without `ttlMs`, results do not expire. */
  constructor({ max, ttlMs = 0 }: { readonly max: number; readonly ttlMs?: number }) {
    this.#kept = new LRUCache({ max, ttl: ttlMs });
  }

  get(key: string, load: () => Promise<Value | undefined>): Promise<Value | undefined> {
    const cachedPromise = this.#kept.get(key);
    if (cachedPromise !== undefined) return cachedPromise;
    // Other callers may be waiting for the same result, so a client that disconnects must not abort the load.
    const loading = runDetached(load);
    this.#kept.set(key, loading);
    const removeEntry = () => {
      if (this.#kept.peek(key) === loading) this.#kept.delete(key);
    };
    loading.then((value) => value === undefined && removeEntry(), removeEntry);
    return loading;
  }

  forget(key: string): void {
    this.#kept.delete(key);
  }

  clear(): void {
    this.#kept.clear();
  }
}
