import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

/**
 * Shutdown steps of started parts. They run in reverse order of {@link ShutdownSteps.add}, each even if an earlier one
 * fails. A part that is added after {@link ShutdownSteps.run} was called, because its startup was still in progress, is
 * shut down at once.
 */
export class ShutdownSteps {
  readonly #steps: [name: string, end: () => unknown][] = [];
  #running = false;

  /** @throws DRAINING if {@link ShutdownSteps.run} was called; startup must stop then. */
  add(name: string, end: () => unknown): void {
    if (this.#running) {
      // Its dependencies may have ended already, so errors of its shutdown are ignored.
      void Promise.resolve()
        .then(end)
        .catch(() => undefined);
      throw runlakeError('DRAINING');
    }
    this.#steps.push([name, end]);
  }

  async run(logger: Logger): Promise<void> {
    this.#running = true;
    for (const [part, end] of this.#steps.splice(0).reverse()) {
      try {
        await end();
      } catch (error) {
        logger.error({ err: error, part }, 'part failed to stop');
      }
    }
  }
}
