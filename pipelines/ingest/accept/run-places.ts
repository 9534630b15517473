import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';

/** The key of a stored run, less its project: what a patch needs to meet it. */
export interface RunPlace {
  readonly traceId: string;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number;
}

/** Looks a stored run up by workspace and id. */
export type LocateRun = (workspaceId: string, runId: string) => Promise<RunPlace | undefined>;

/** Runs that were posted here lately, before the sink stores them. */
const rememberedRuns = 100_000;
const pollMs = 50;

/** Finds the key of a run by its id: among recent posts, then in the store, waiting for it to appear. */
export class RunPlaces {
  readonly #recent = new LRUCache<string, RunPlace>({ max: rememberedRuns });
  readonly #locate: LocateRun;

  constructor(locate: LocateRun) {
    this.#locate = locate;
  }

  remember(workspaceId: string, runId: string, { traceId, startTimeMicros, traceTimeMicros }: RunPlace): void {
    this.#recent.set(`${workspaceId}:${runId}`, { traceId, startTimeMicros, traceTimeMicros });
  }

  /** @returns undefined where the run did not appear within `waitMs`. */
  async find(workspaceId: string, runId: string, waitMs: number): Promise<RunPlace | undefined> {
    const deadline = Date.now() + waitMs;
    for (;;) {
      const place = this.#recent.get(`${workspaceId}:${runId}`) ?? (await this.#locate(workspaceId, runId));
      if (place !== undefined || Date.now() >= deadline) return place;
      await delay(Math.min(pollMs, Math.max(1, deadline - Date.now())));
    }
  }
}
