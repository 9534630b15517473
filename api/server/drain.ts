import { setMaxListeners } from 'node:events';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { withTimeout } from '../../infra/timeouts/with-timeout.ts';

/**
 * Counts in-flight requests, and refuses new requests at shutdown.
 *
 * Invariant: {@link Drain.start} resolves when all requests that {@link Drain.enter} admitted are finished, or when the
 * timeout expires.
 *
 *   1. When {@link Drain.start} is called, new requests are refused.
 *   2. {@link Drain.start} waits for the in-flight requests.
 *   3. {@link Drain.start} resolves.
 */
export class Drain {
  #inFlight = 0;
  #draining = false;
  #idle: (() => void) | undefined;
  readonly #started = new AbortController();

  constructor() {
    // Every open stream adds a listener.
    setMaxListeners(0, this.#started.signal);
  }

  /** Aborted when {@link Drain.start} is called. Streams that do not end by themselves must end at this point. */
  get started(): AbortSignal {
    return this.#started.signal;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** Counts a new request. @throws DRAINING after {@link Drain.start} was called. */
  enter(): void {
    if (this.#draining) throw runlakeError('DRAINING', {}, { retryAfterSeconds: 1 });
    this.#inFlight++;
  }

  leave(): void {
    this.#inFlight--;
    if (this.#inFlight === 0) this.#idle?.();
  }

  /**
   * Refuses new requests and waits for in-flight requests. Resolves with the number of requests that are still in
   * flight when the timeout expires.
   */
  async start(timeoutMs: number): Promise<number> {
    this.#draining = true;
    this.#started.abort();
    if (this.#inFlight > 0) {
      const idle = new Promise<void>((resolve) => {
        this.#idle = resolve;
      });
      await withTimeout(idle, timeoutMs);
    }
    return this.#inFlight;
  }
}
