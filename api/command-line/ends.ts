import { fault } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

/**
 * How the parts that were started end: last to first, each even where one before it failed. A part that comes up after
 * {@link Ends.run} was called, because a start was under way, ends at once.
 */
export class Ends {
  readonly #ends: [name: string, end: () => unknown][] = [];
  #running = false;

  /** @throws DRAINING where the parts have been told to end: the start goes no further. */
  add(name: string, end: () => unknown): void {
    if (this.#running) {
      // Whatever it uses may have ended before it, so only its own clean-up counts.
      void Promise.resolve()
        .then(end)
        .catch(() => undefined);
      throw fault('DRAINING');
    }
    this.#ends.push([name, end]);
  }

  async run(logger: Logger): Promise<void> {
    this.#running = true;
    for (const [part, end] of this.#ends.splice(0).reverse()) {
      try {
        await end();
      } catch (error) {
        logger.error({ err: error, part }, 'a part did not end cleanly');
      }
    }
  }
}
