import type { Logger } from '../../infra/telemetry/logger.ts';

/** How the parts that were started end: last to first, each even where one before it failed. */
export class Ends {
  readonly #ends: [name: string, end: () => unknown][] = [];

  add(name: string, end: () => unknown): void {
    this.#ends.push([name, end]);
  }

  async run(logger: Logger): Promise<void> {
    for (const [part, end] of this.#ends.splice(0).reverse()) {
      try {
        await end();
      } catch (error) {
        logger.error({ err: error, part }, 'a part did not end cleanly');
      }
    }
  }
}
