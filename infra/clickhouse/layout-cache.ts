import type { Layout } from './settings.ts';

/** Age at which the layout is read again, because the number of replicas may have changed. */
const refreshAgeMs = 60_000;
/** Maximum age of a layout that is used while it is read again. */
const maxAgeMs = 2 * refreshAgeMs;

/**
 * Keeps the layout of the tables, or the servers of its shards. While they are read again, statements use the known ones,
 * so that they do not wait for a server that does not respond.
 */
export class LayoutCache<Value = Layout> {
  readonly #read: () => Promise<Value>;
  readonly #nowMs: () => number;
  #known: { readonly value: Value; readonly readAtMs: number } | undefined;
  #reading: Promise<Value> | undefined;

  /** @param nowMs a monotonic clock. */
  constructor(read: () => Promise<Value>, nowMs = () => performance.now()) {
    this.#read = read;
    this.#nowMs = nowMs;
  }

  /** Returns a layout that is at most two minutes old. @throws the error of the read if there is no such layout. */
  async get(): Promise<Value> {
    const ageMs = this.#known === undefined ? Infinity : this.#nowMs() - this.#known.readAtMs;
    if (this.#known && ageMs <= refreshAgeMs) return this.#known.value;
    this.#reading ??= this.#refresh().finally(() => {
      this.#reading = undefined;
    });
    if (this.#known === undefined || ageMs > maxAgeMs) return this.#reading;
    // A later statement reads it again.
    this.#reading.catch(() => undefined);
    return this.#known.value;
  }

  async #refresh(): Promise<Value> {
    const readAtMs = this.#nowMs();
    const value = await this.#read();
    this.#known = { value, readAtMs };
    return value;
  }
}
