/**
 * Sends requests from several clients: each client sends its requests one after another, and all clients run
 * concurrently. During this time the server is killed; requests without an acknowledgement are sent again after the
 * restart, except those marked `once`.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { RunlakeProcess } from '../runlake-process.ts';
import type { PlannedRequest } from './plan-phase.ts';
import type { Random } from './random.ts';

const maxAttempts = 50;

export class Player {
  #runlake: RunlakeProcess;
  /** Pending while the server restarts. */
  #up: Promise<void> = Promise.resolve();
  readonly #maxKills: number;
  kills = 0;

  constructor(runlake: RunlakeProcess, maxKills = Number.POSITIVE_INFINITY) {
    this.#runlake = runlake;
    this.#maxKills = maxKills;
  }

  get runlake(): RunlakeProcess {
    return this.#runlake;
  }

  /**
   * Plays the requests.
   *
   * @returns the requests whose outcome is unknown.
   */
  async play(
    clients: readonly (readonly PlannedRequest[])[],
    keys: readonly string[],
    random: Random,
  ): Promise<PlannedRequest[]> {
    const total = clients.reduce((sum, requests) => sum + requests.length, 0);
    const killAt = new Set([random.int(total), random.int(total)].slice(0, random.between(1, 2)));
    const pauses = [...killAt].map(() => random.int(40));
    const unknown: PlannedRequest[] = [];
    let sent = 0;
    const sendAll = async (requests: readonly PlannedRequest[]) => {
      for (const request of requests) {
        if (killAt.has(sent++) && this.kills < this.#maxKills) this.#killSoon(pauses.pop() ?? 0);
        if (!(await this.#deliver(request, keys))) unknown.push(request);
      }
    };
    await Promise.all(clients.map(sendAll));
    await this.#up;
    return unknown;
  }

  /** Stops Runlake gracefully, as an operator would, and starts it again. */
  async restart(): Promise<number | null> {
    const code = await this.#runlake.stop();
    this.#runlake = await this.#runlake.restart();
    return code;
  }

  #killSoon(afterMs: number): void {
    this.kills++;
    this.#up = this.#up
      .then(() => pause(afterMs))
      .then(async () => {
        this.#runlake = await this.#runlake.restart();
      });
    // `#deliver` awaits `#up` and gets the error.
    this.#up.catch(() => undefined);
  }

  async #deliver(request: PlannedRequest, keys: readonly string[]): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      try {
        const answer = await fetch(`${this.#runlake.url}${request.path}`, {
          method: request.method,
          headers: { ...request.headers, 'x-api-key': keys[request.sender] as string },
          body: new Uint8Array(request.body),
        });
        const text = await answer.text();
        if (answer.ok && !text.includes('rejected')) return true;
        if (answer.status !== 503)
          throw new RefusedError(`${request.path}: ${answer.status} ${text} for ${request.body}`);
      } catch (error) {
        if (error instanceof RefusedError || attempt === maxAttempts) throw error;
        if (request.once) return false;
      }
      await this.#up;
    }
  }
}

class RefusedError extends Error {}
