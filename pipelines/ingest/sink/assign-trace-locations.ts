import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../../infra/clickhouse/settings.ts';
import { readSchemaId } from '../../../infra/event-log/avro.ts';
import type { LogRecord } from '../../../infra/event-log/event-log.ts';
import { type Lifetime, mergeLifetimes, parseTierNumber } from '../../retention/lifetimes.ts';
import {
  buildTraceKey,
  copyWithTraceLocation,
  nilUuid,
  readProjectId,
  readTraceKey,
  readTraceTimeMicros,
  type TenantTrace,
} from '../run-event/run-event.ts';
import type { ValidRunEvent } from './split-into-batches.ts';

/**
 * Project and time that a trace is stored under. They come from the event with the lowest version that names a project
 * (`settle-traces.ts`).
 */
export interface TraceLocation {
  readonly projectId: string;
  readonly traceTimeMicros: number;
  /** Version of the event that the location comes from. */
  readonly version: bigint;
  /**
   * Set if this process has read the location from ClickHouse; another process may then have stored runs of the trace.
   */
  readonly wasRead?: true;
  readonly lifetime: Lifetime;
}

/** Parses a key from `readTraceKey` and returns its tenant and trace. */
export function parseTraceKey(key: string): TenantTrace {
  return { tenantId: key.slice(0, 36), traceId: key.slice(37) };
}

const dayMs = 86_400_000;

/**
 * Caches the locations of recent traces, by tenant and trace (see `readTraceKey`), and reads the locations of other
 * traces from `trace_locations`. Two generations approximate an LRU cache without a linked list: when the young
 * generation holds `capacity` / 2 entries or is a day old, it replaces the old one. An entry that is not used is
 * therefore dropped within two days.
 */
export class TraceLocationCache {
  #young = new Map<string, TraceLocation>();
  #old = new Map<string, TraceLocation>();
  /** Interns project ids, because each event carries its own copy. */
  #projectIds = new Map<string, string>();
  readonly #half: number;
  #youngSinceMs = performance.now();

  constructor(capacity: number) {
    this.#half = Math.max(1, Math.floor(capacity / 2));
  }

  /**
   * Returns the known locations of `keys`, from the cache or from ClickHouse. If a key has several locations in
   * ClickHouse, adds it to `contested`, and does not cache it: if the batch fails before its trace is moved, the
   * repeated batch must find the locations again.
   */
  async locate(
    keys: Iterable<string>,
    clickhouse: ClickHouse,
    contested: Set<string>,
  ): Promise<Map<string, TraceLocation>> {
    this.#rotateIfOld();
    const locations = new Map<string, TraceLocation>();
    const unknown: TenantTrace[] = [];
    for (const key of keys) {
      const location = this.#get(key);
      if (location === undefined) unknown.push(parseTraceKey(key));
      else locations.set(key, location);
    }
    if (unknown.length === 0) return locations;
    for (const { key, locations: found } of await readLocations(clickhouse, unknown)) {
      const location: TraceLocation = { ...(found[0] as TraceLocation), wasRead: true };
      locations.set(key, location);
      if (found.length > 1) contested.add(key);
      else this.remember(key, location);
    }
    return locations;
  }

  /**
   * Caches a location. Call this method only after the location has been stored, because a cached location is not read
   * again.
   */
  remember(key: string, location: TraceLocation): void {
    if (this.#young.size >= this.#half) this.#rotate();
    const { projectId } = location;
    if (!this.#projectIds.has(projectId)) this.#projectIds.set(projectId, projectId);
    this.#young.set(key, { ...location, projectId: this.#projectIds.get(projectId) as string });
  }

  /** Forgets all locations, so that they are read again. */
  clear(): void {
    this.#rotate();
    this.#old = new Map();
  }

  #rotateIfOld(): void {
    const ageMs = performance.now() - this.#youngSinceMs;
    if (ageMs > dayMs) this.#rotate();
    if (ageMs > 2 * dayMs) this.#old = new Map();
  }

  #rotate(): void {
    this.#old = this.#young;
    this.#young = new Map();
    this.#projectIds = new Map();
    this.#youngSinceMs = performance.now();
  }

  #get(key: string): TraceLocation | undefined {
    const location = this.#young.get(key);
    if (location !== undefined) return location;
    const older = this.#old.get(key);
    if (older !== undefined) this.remember(key, older);
    return older;
  }
}

interface TraceLocations {
  readonly key: string;
  readonly trace: TenantTrace;
  /** Locations of the trace, at least one; the first location wins. */
  readonly locations: readonly TraceLocation[];
}

/** Reads all locations that events of the traces are stored under. Traces without a location are omitted. */
export async function readLocations(clickhouse: ClickHouse, traces: readonly TenantTrace[]): Promise<TraceLocations[]> {
  if (traces.length === 0) return [];
  const rows = await clickhouse.query<{
    tenant_id: string;
    trace_id: string;
    session_id: string;
    micros: number;
    lowest: string;
    tier: number;
    expires: number;
  }>({
    name: 'locate-traces',
    settings: lookupSettings,
    sql: `SELECT tenant_id, trace_id, session_id, toUnixTimestamp64Micro(trace_time) AS micros,
            toString(min(version)) AS lowest, max(trace_tier) AS tier, toUnixTimestamp(max(expires_at)) AS expires
          FROM trace_locations
          WHERE (tenant_id, trace_id) IN keys
          GROUP BY tenant_id, trace_id, session_id, trace_time
          ORDER BY min(version), session_id, trace_time`,
    externalTable: {
      name: 'keys',
      structure: 'tenant_id UUID, trace_id UUID',
      rows: traces.map(({ tenantId, traceId }) => [tenantId, traceId]),
    },
  });
  const found = new Map<string, { key: string; trace: TenantTrace; locations: TraceLocation[] }>();
  for (const { tenant_id: tenantId, trace_id: traceId, session_id: projectId, micros, lowest, ...life } of rows) {
    const key = buildTraceKey(tenantId, traceId);
    const lifetime = { tier: parseTierNumber(life.tier), expiresAtSeconds: life.expires };
    const location = { projectId, traceTimeMicros: micros, version: BigInt(lowest), lifetime };
    const known = found.get(key);
    if (known === undefined) found.set(key, { key, trace: { tenantId, traceId }, locations: [location] });
    else known.locations.push(location);
  }
  return [...found.values()];
}

interface LocatedEvents {
  /** Events with the project and time of their trace, in log order. */
  readonly located: ValidRunEvent[];
  /** Events whose trace location is not known yet. */
  readonly deferred: ValidRunEvent[];
  /** Keys of the traces whose location this batch determines. */
  readonly newTraces: string[];
  /** Number of events whose project or trace time was overwritten. */
  readonly moved: number;
}

/** Returns the lifetime of a trace whose location is given by an event. */
export type GetStatedLifetime = (projectId: string, traceTimeMicros: number) => Lifetime;

/**
 * Assigns each event the location of its trace. The event with the lowest version that names a project determines the
 * location, also for the other events of the batch. Events of traces that still have no location are deferred.
 *
 * @param locations Known locations by trace key. The function sets the locations that this batch determines.
 * @param contested Receives the keys of traces that were previously stored under another location.
 * @param getStatedLifetime Returns the lifetime of a trace for the location that an event states.
 */
export function assignTraceLocations(
  events: readonly ValidRunEvent[],
  locations: Map<string, TraceLocation>,
  contested: Set<string>,
  getStatedLifetime: GetStatedLifetime,
): LocatedEvents {
  const newTraces = new Set<string>();
  for (const { record, traceKey: key } of events) {
    const projectId = readProjectId(record.value);
    if (projectId === nilUuid) continue;
    const known = locations.get(key);
    if (known !== undefined && known.version <= record.version) continue;
    const traceTimeMicros = readTraceTimeMicros(record.value);
    const stated = { projectId, traceTimeMicros };
    const isMove = known !== undefined && !isSameLocation(known, stated);
    const own = getStatedLifetime(projectId, traceTimeMicros);
    // Stored rows of a location have its lifetime, also if the retention of the project has changed since. A move never
    // shortens it, because rows already have the longer one.
    const lifetime = known === undefined ? own : isMove ? mergeLifetimes(known.lifetime, own) : known.lifetime;
    // Of the known location, only `wasRead` stays.
    locations.set(key, { ...known, ...stated, version: record.version, lifetime });
    if (known === undefined) newTraces.add(key);
    else if (!newTraces.has(key) && isMove) contested.add(key);
  }
  const located: ValidRunEvent[] = [];
  const deferred: ValidRunEvent[] = [];
  let moved = 0;
  for (const event of events) {
    const { record: original, schemaId, traceKey: key } = event;
    const location = locations.get(key);
    if (location === undefined) {
      deferred.push(event);
      continue;
    }
    const record = moveToLocation(original, location);
    const statesLocation = record === original;
    if (!statesLocation) moved++;
    located.push({ record, schemaId, traceKey: key, original, statesLocation, lifetime: location.lifetime });
  }
  return { located, deferred, newTraces: [...newTraces], moved };
}

function isSameLocation(one: TraceLocation, other: Pick<TraceLocation, 'projectId' | 'traceTimeMicros'>): boolean {
  return one.projectId === other.projectId && one.traceTimeMicros === other.traceTimeMicros;
}

/** Returns a deferred event as an event of its trace, whose location is in `locations`. */
export function moveDeferredEvent(record: LogRecord, locations: ReadonlyMap<string, TraceLocation>): ValidRunEvent {
  const traceKey = readTraceKey(record.value);
  const location = locations.get(traceKey) as TraceLocation;
  const schemaId = readSchemaId(record.value) as number;
  return {
    record: moveToLocation(record, location),
    original: record,
    schemaId,
    traceKey,
    lifetime: location.lifetime,
  };
}

/** Returns the event with the longer of its own and the given lifetime. */
export function extendLifetime(event: ValidRunEvent, lifetime: Lifetime): ValidRunEvent {
  return { ...event, lifetime: event.lifetime ? mergeLifetimes(event.lifetime, lifetime) : lifetime };
}

/** Returns the record itself if it already has `location`; otherwise returns a copy with this location. */
export function moveToLocation(record: LogRecord, location: TraceLocation): LogRecord {
  const { value } = record;
  if (readProjectId(value) === location.projectId && readTraceTimeMicros(value) === location.traceTimeMicros)
    return record;
  return { ...record, value: copyWithTraceLocation(value, location.projectId, location.traceTimeMicros) };
}
