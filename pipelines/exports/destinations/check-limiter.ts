import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/**
 * Maximum checks per workspace in this process. A check of a store that hangs holds a connection and a client for seconds.
 */
const maxConcurrentChecks = 16;

/** Limits concurrent destination checks in this process, separately for each workspace. */
export class CheckLimiter {
  readonly #inFlight = new Map<string, number>();

  /** @throws OVERLOADED if the workspace is at its limit; errors of `check`. */
  async during(workspaceId: string, check: () => Promise<void>): Promise<void> {
    const inFlight = this.#inFlight.get(workspaceId) ?? 0;
    if (inFlight >= maxConcurrentChecks) {
      throw runlakeError('OVERLOADED', { what: 'checks of destinations of this workspace' }, { retryAfterSeconds: 5 });
    }
    this.#inFlight.set(workspaceId, inFlight + 1);
    try {
      await check();
    } finally {
      const left = (this.#inFlight.get(workspaceId) as number) - 1;
      if (left > 0) this.#inFlight.set(workspaceId, left);
      else this.#inFlight.delete(workspaceId);
    }
  }
}
