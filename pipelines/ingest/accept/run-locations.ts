import { setImmediate as nextTurn } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';
import type { EventLog } from '../../../infra/event-log/event-log.ts';
import { findAccepted } from '../../../infra/event-log/find-accepted.ts';
import { poll } from '../../../infra/timeouts/poll.ts';
import { runEvents } from '../../../schemas/topics.ts';

/** The key of a stored run without its project; a patch must have the same key. */
export interface RunLocation {
  readonly traceId: string;
  readonly startTimeMicros: number;
  readonly traceTimeMicros: number;
}

/** Finds stored runs of a workspace by id; runs that are not stored are missing from the result. */
export type LocateRuns = (
  workspaceId: string,
  runIds: readonly string[],
) => Promise<readonly (RunLocation & { readonly runId: string })[]>;

/** A lookup of several runs of one workspace. */
interface Lookup {
  readonly runIds: Set<string>;
  readonly locations: Promise<ReadonlyMap<string, RunLocation>>;
}

/** Maximum number of recently posted runs that the cache holds until the sink has stored them. */
const maxRememberedRuns = 100_000;
const pollIntervalMs = 50;

/**
 * Finds the key of a run by its id, first among recent posts, then in ClickHouse, and waits for the run to appear.
 * Lookups for the same workspace within one turn of the event loop share one query.
 */
export class RunLocations {
  readonly #recent = new LRUCache<string, RunLocation>({ max: maxRememberedRuns });
  readonly #gathering = new Map<string, Lookup>();
  readonly #locate: LocateRuns;

  constructor(locate: LocateRuns) {
    this.#locate = locate;
  }

  remember(workspaceId: string, runId: string, { traceId, startTimeMicros, traceTimeMicros }: RunLocation): void {
    this.#recent.set(`${workspaceId}:${runId}`, { traceId, startTimeMicros, traceTimeMicros });
  }

  /** Returns the location of a run. @returns undefined if the run does not appear within `waitMs`. */
  async find(workspaceId: string, runId: string, waitMs: number): Promise<RunLocation | undefined> {
    return poll(() => this.#recent.get(`${workspaceId}:${runId}`) ?? this.#lookUp(workspaceId, runId), {
      intervalMs: pollIntervalMs,
      timeoutMs: waitMs,
    });
  }

  async #lookUp(workspaceId: string, runId: string): Promise<RunLocation | undefined> {
    const lookup = this.#gathering.get(workspaceId) ?? this.#gather(workspaceId);
    lookup.runIds.add(runId);
    return (await lookup.locations).get(runId);
  }

  #gather(workspaceId: string): Lookup {
    const runIds = new Set<string>();
    const lookup: Lookup = {
      runIds,
      locations: nextTurn().then(async () => {
        this.#gathering.delete(workspaceId);
        const found = await this.#locate(workspaceId, [...runIds]);
        return new Map(found.map((location) => [location.runId, location]));
      }),
    };
    this.#gathering.set(workspaceId, lookup);
    return lookup;
  }
}

interface FindDeps {
  readonly log: Pick<EventLog, 'position' | 'isStored'>;
  readonly runLocations: RunLocations;
  readonly config: { readonly patchWaitMs: number };
}

/**
 * Returns the locations of accepted runs. Waits for them up to `patchWaitMs`, and as long for the sinks if one is missing.
 *
 * @returns undefined if one of the runs was not accepted.
 * @throws NOT_STORED_YET if one may be among the events that are not stored yet; errors of the stores and the log.
 */
export function findAcceptedRuns(
  workspaceId: string,
  runIds: readonly string[],
  { log, runLocations, config: { patchWaitMs: waitMs } }: FindDeps,
): Promise<readonly RunLocation[] | undefined> {
  return findAccepted({ log, topic: runEvents, waitMs, storeWaitMs: waitMs }, async (ms) => {
    const found = await Promise.all(runIds.map((runId) => runLocations.find(workspaceId, runId, ms)));
    return found.every((location) => location !== undefined) ? found : undefined;
  });
}
