import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';

/** The key of a stored run, less its project: what a patch needs to meet it. */
export interface RunPlace {
  readonly traceId: string;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number;
}

/** Looks stored runs of a workspace up by their ids; those that are not stored are left out. */
export type LocateRuns = (
  workspaceId: string,
  runIds: readonly string[],
) => Promise<readonly (RunPlace & { readonly runId: string })[]>;

/** Runs of a workspace that are looked up together. */
interface Look {
  readonly runIds: Set<string>;
  readonly places: Promise<ReadonlyMap<string, RunPlace>>;
}

/** Runs that were posted here lately, before the sink stores them. */
const rememberedRuns = 100_000;
const pollMs = 50;

/**
 * Finds the key of a run by its id: among recent posts, then in the store, waiting for it to appear. What is asked in one turn
 * of the event loop is one question to the store.
 */
export class RunPlaces {
  readonly #recent = new LRUCache<string, RunPlace>({ max: rememberedRuns });
  readonly #gathering = new Map<string, Look>();
  readonly #locate: LocateRuns;

  constructor(locate: LocateRuns) {
    this.#locate = locate;
  }

  remember(workspaceId: string, runId: string, { traceId, startTimeMicros, traceTimeMicros }: RunPlace): void {
    this.#recent.set(`${workspaceId}:${runId}`, { traceId, startTimeMicros, traceTimeMicros });
  }

  /** @returns undefined where the run did not appear within `waitMs`. */
  async find(workspaceId: string, runId: string, waitMs: number): Promise<RunPlace | undefined> {
    const deadline = Date.now() + waitMs;
    for (;;) {
      const place = this.#recent.get(`${workspaceId}:${runId}`) ?? (await this.#lookUp(workspaceId, runId));
      if (place !== undefined || Date.now() >= deadline) return place;
      await delay(Math.min(pollMs, Math.max(1, deadline - Date.now())));
    }
  }

  async #lookUp(workspaceId: string, runId: string): Promise<RunPlace | undefined> {
    const look = this.#gathering.get(workspaceId) ?? this.#gather(workspaceId);
    look.runIds.add(runId);
    return (await look.places).get(runId);
  }

  #gather(workspaceId: string): Look {
    const runIds = new Set<string>();
    const look: Look = {
      runIds,
      places: nextTurn().then(async () => {
        this.#gathering.delete(workspaceId);
        const found = await this.#locate(workspaceId, [...runIds]);
        return new Map(found.map((place) => [place.runId, place]));
      }),
    };
    this.#gathering.set(workspaceId, look);
    return look;
  }
}
