import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import { traceKey } from '../run-event/key-fields.ts';

/** Where the first event of a trace put it. */
export interface TracePlace {
  readonly projectId: string;
  readonly traceTimeMicros: number;
}

/**
 * The places of recent traces, by tenant and trace (see `traceKeyOf`), and of all others by asking `trace_locations`.
 * Two generations stand in for a least-recently-used list: at `capacity` / 2 the younger becomes the older, which keeps
 * what is in use without a linked list.
 */
export class KnownTraces {
  #young = new Map<string, TracePlace>();
  #old = new Map<string, TracePlace>();
  /** One string a project; each trace came with a copy of its own. */
  #projectIds = new Map<string, string>();
  readonly #half: number;

  constructor(capacity: number) {
    this.#half = Math.max(1, Math.floor(capacity / 2));
  }

  /** The places of those of `keys` that are known or stored. */
  async placesOf(keys: Iterable<string>, warehouse: Warehouse): Promise<Map<string, TracePlace>> {
    const places = new Map<string, TracePlace>();
    const unknown: string[] = [];
    for (const key of keys) {
      const place = this.#get(key);
      if (place === undefined) unknown.push(key);
      else places.set(key, place);
    }
    if (unknown.length === 0) return places;
    for (const [key, place] of await locateTraces(unknown, warehouse)) {
      this.remember(key, place);
      places.set(key, place);
    }
    return places;
  }

  /** To be called once the place is stored: what is remembered is never asked for again. */
  remember(key: string, place: TracePlace): void {
    if (this.#young.size >= this.#half) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#projectIds = new Map();
    }
    const { projectId } = place;
    if (!this.#projectIds.has(projectId)) this.#projectIds.set(projectId, projectId);
    this.#young.set(key, { ...place, projectId: this.#projectIds.get(projectId) as string });
  }

  #get(key: string): TracePlace | undefined {
    const place = this.#young.get(key);
    if (place !== undefined) return place;
    const older = this.#old.get(key);
    if (older !== undefined) this.remember(key, older);
    return older;
  }
}

async function locateTraces(keys: readonly string[], warehouse: Warehouse): Promise<[string, TracePlace][]> {
  const rows = await warehouse.query<{ tenant_id: string; trace_id: string; session_id: string; micros: number }>({
    name: 'locate-traces',
    // The least of all inserts, merged or not: the same for every reader at any time.
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
