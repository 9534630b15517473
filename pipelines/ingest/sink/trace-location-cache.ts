import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { traceKey } from '../run-event/key-fields.ts';

/** Project and time that a trace is stored under. Its first stored event with a project decides both. */
export interface TraceLocation {
  readonly projectId: string;
  readonly traceTimeMicros: number;
}

/**
 * Caches the locations of recent traces, by tenant and trace (see `traceKeyOf`); reads those of other traces from
 * `trace_locations`. Two generations approximate an LRU cache without a linked list: when the young one holds
 * `capacity` / 2 entries it replaces the old one.
 */
export class TraceLocationCache {
  #young = new Map<string, TraceLocation>();
  #old = new Map<string, TraceLocation>();
  /** Interns project ids: each event carries its own copy. */
  #projectIds = new Map<string, string>();
  readonly #half: number;

  constructor(capacity: number) {
    this.#half = Math.max(1, Math.floor(capacity / 2));
  }

  /** Locations of those of `keys` that have one, from the cache or from ClickHouse. */
  async locate(keys: Iterable<string>, clickhouse: ClickHouse): Promise<Map<string, TraceLocation>> {
    const locations = new Map<string, TraceLocation>();
    const unknown: string[] = [];
    for (const key of keys) {
      const location = this.#get(key);
      if (location === undefined) unknown.push(key);
      else locations.set(key, location);
    }
    if (unknown.length === 0) return locations;
    for (const [key, location] of await locateTraces(unknown, clickhouse)) {
      this.remember(key, location);
      locations.set(key, location);
    }
    return locations;
  }

  /** Call this only after the location is stored: a cached location is never read again. */
  remember(key: string, location: TraceLocation): void {
    if (this.#young.size >= this.#half) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#projectIds = new Map();
    }
    const { projectId } = location;
    if (!this.#projectIds.has(projectId)) this.#projectIds.set(projectId, projectId);
    this.#young.set(key, { ...location, projectId: this.#projectIds.get(projectId) as string });
  }

  #get(key: string): TraceLocation | undefined {
    const location = this.#young.get(key);
    if (location !== undefined) return location;
    const older = this.#old.get(key);
    if (older !== undefined) this.remember(key, older);
    return older;
  }
}

async function locateTraces(keys: readonly string[], clickhouse: ClickHouse): Promise<[string, TraceLocation][]> {
  const rows = await clickhouse.query<{ tenant_id: string; trace_id: string; session_id: string; micros: number }>({
    name: 'locate-traces',
    // The minimum over all inserted rows, merged or not, gives every reader the same location at any time.
    sql: `SELECT tenant_id, trace_id, (min(pick) AS first).3 AS session_id, toUnixTimestamp64Micro(first.2) AS micros
          FROM trace_locations
          WHERE (tenant_id, trace_id) IN keys
          GROUP BY tenant_id, trace_id`,
    external: {
      name: 'keys',
      structure: 'tenant_id UUID, trace_id UUID',
      rows: keys.map((key) => [key.slice(0, 36), key.slice(37)]),
    },
  });
  return rows.map((row) => [
    traceKey(row.tenant_id, row.trace_id),
    { projectId: row.session_id, traceTimeMicros: row.micros },
  ]);
}
