const minTurnMs = 20;

/**
 * Lets code that drains buffered graph output yield to the event loop at intervals. Draining alone never yields;
 * without these yields, neither events nor heartbeats would leave the process. All runs of the process share one
 * instance.
 *
 * In each turn of the event loop graphs produce more output, and LangGraph's queue becomes slower as it grows.
 * Therefore the interval doubles after each forced turn, from 20 ms up to `maxMs`, and shrinks slowly after turns in
 * which the queue was drained.
 */
export class EventLoopTurn {
  readonly #maxMs: number;
  #startedAtMs: number | undefined;
  #lengthMs = minTurnMs;
  #next: Promise<void> | undefined;
  #begin: () => void = () => undefined;

  /**
   * @param maxMs Maximum interval in milliseconds. It must be shorter than the period without messages after which the
   *   parent process kills this process.
   */
  constructor(maxMs: number) {
    this.#maxMs = maxMs;
  }

  /**
   * Returns undefined if the interval has not passed yet; otherwise returns a promise that resolves in the next turn of
   * the event loop.
   */
  yieldIfDue(): Promise<void> | undefined {
    if (this.#startedAtMs === undefined) {
      this.#startedAtMs = performance.now();
      setImmediate(() => this.#end());
    }
    if (this.#next === undefined && performance.now() - this.#startedAtMs < this.#lengthMs) return undefined;
    this.#next ??= new Promise((resolve) => {
      this.#begin = resolve;
    });
    return this.#next;
  }

  #end(): void {
    this.#startedAtMs = undefined;
    this.#lengthMs =
      this.#next === undefined ? Math.max(minTurnMs, 0.95 * this.#lengthMs) : Math.min(2 * this.#lengthMs, this.#maxMs);
    this.#next = undefined;
    this.#begin();
  }
}
