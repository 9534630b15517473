import { setMaxListeners } from 'node:events';
import { fault } from '../../infra/errors/runlake-error.ts';

/**
 * Counts requests under way and stops new ones at shutdown.
 *
 * Invariant: a request that {@link Drain.enter} let in is finished, or the time given to {@link Drain.start} is over, before
 * that resolves. Steps: 1. from the call on, new requests are refused; 2. wait for those under way; 3. resolve.
 */
export class Drain {
  #underWay = 0;
  #draining = false;
  #idle: (() => void) | undefined;
  readonly #started = new AbortController();

  constructor() {
    // Every open stream listens.
    setMaxListeners(0, this.#started.signal);
  }

  /** Aborted when {@link Drain.start} is called: answers that have no end of their own end then. */
  get started(): AbortSignal {
    return this.#started.signal;
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** @throws DRAINING after {@link Drain.start} was called. */
  enter(): void {
    if (this.#draining) throw fault('DRAINING', {}, { retryAfterSeconds: 1 });
    this.#underWay++;
  }

  leave(): void {
    this.#underWay--;
    if (this.#underWay === 0) this.#idle?.();
  }

  /** Resolves with the number of requests that were still under way when the time was over. */
  async start(timeoutMs: number): Promise<number> {
    this.#draining = true;
    this.#started.abort();
    if (this.#underWay > 0) {
      let timer: NodeJS.Timeout | undefined;
      await Promise.race([
        new Promise<void>((resolve) => {
          this.#idle = resolve;
        }),
        new Promise<void>((resolve) => {
          timer = setTimeout(resolve, timeoutMs);
        }),
      ]);
      clearTimeout(timer);
    }
    return this.#underWay;
  }
}
