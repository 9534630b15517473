import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

/**
 * Shutdown steps of started parts. The steps run in the reverse order of {@link ShutdownSteps.add}. A step runs even if
 * an earlier step fails. A part can be added after {@link ShutdownSteps.run} was called, because its startup was still
 * in progress; it is then shut down immediately.
 */
export class ShutdownSteps {
  readonly #steps: [name: string, end: () => unknown][] = [];
  #running = false;

  /** Adds a shutdown step. @throws DRAINING if {@link ShutdownSteps.run} was called. Startup must then stop. */
  add(name: string, end: () => unknown): void {
    if (this.#running) {
      // The dependencies of the part may have ended already, so errors of its shutdown are ignored.
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
