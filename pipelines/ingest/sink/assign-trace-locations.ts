import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import {
  nilUuid,
  readProjectId,
  readTraceKey,
  readTraceTimeMicros,
  traceKey,
  withTraceLocation,
} from '../run-event/run-event.ts';

/** Project and time that a trace is stored under. Its first stored event with a project decides both. */
export interface TraceLocation {
  readonly projectId: string;
  readonly traceTimeMicros: number;
}

/**
 * Caches the locations of recent traces, by tenant and trace (see `readTraceKey`); reads those of other traces from
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

interface LocatedEvents<R> {
  /** Events with the project and time of their trace, in log order. */
  readonly located: R[];
  /** Events whose trace location is not known yet. */
  readonly deferred: R[];
  /** Keys of the traces whose location this batch decides. */
  readonly newTraces: string[];
  /** Number of events whose project or trace time was overwritten. */
  readonly moved: number;
}

interface HasRecord {
  readonly record: LogRecord;
}

/**
 * Assigns each event the location of its trace, which the trace's first event with a project decides.
 *
 * The decision is final, because one sink handles all events of a trace in log order. It also applies to events before
 * that first one in the same batch. Events of traces that still have no location are deferred.
 *
 * @param locations known locations by trace key; the function adds those that this batch decides.
 */
export function assignTraceLocations<R extends HasRecord>(
  events: readonly R[],
  locations: Map<string, TraceLocation>,
): LocatedEvents<R> {
  const newTraces: string[] = [];
  for (const { record } of events) {
    const key = readTraceKey(record.value);
    const projectId = readProjectId(record.value);
    if (projectId === nilUuid || locations.has(key)) continue;
    locations.set(key, { projectId, traceTimeMicros: readTraceTimeMicros(record.value) });
    newTraces.push(key);
  }
  const located: R[] = [];
  const deferred: R[] = [];
  let moved = 0;
  for (const event of events) {
    const location = locations.get(readTraceKey(event.record.value));
    if (location === undefined) {
      deferred.push(event);
      continue;
    }
    const record = moveTo(event.record, location);
    if (record !== event.record) moved++;
    located.push(record === event.record ? event : { ...event, record, original: event.record });
  }
  return { located, deferred, newTraces, moved };
}

/** Returns the record itself if it already has `location`, else a copy that does. */
export function moveTo(record: LogRecord, location: TraceLocation): LogRecord {
  const { value } = record;
  if (readProjectId(value) === location.projectId && readTraceTimeMicros(value) === location.traceTimeMicros)
    return record;
  return { ...record, value: withTraceLocation(value, location.projectId, location.traceTimeMicros) };
}
