/**
 * Step 1 of reading a page: which runs are on it.
 *
 * `FINAL` cannot stop early, so it is asked for slices of time only, each holding about as many rows as are needed:
 *
 *   1. Windows follow each other from where reading begins, each wider than the last. A probe without `FINAL` reads the start
 *      times of a window in key order, stops after a few thousand and tells how far they reach: that is the slice. A window
 *      with fewer rows is a slice as a whole; an empty one is none.
 *   2. A slice is read with `FINAL`, keys and filter columns only, conditions on values included.
 *   3. Not full behind thousands of rows: few match. Further slices are no longer probed, each is eight times as wide.
 *
 * So a page costs a bounded number of queries, however few runs match and wherever they lie.
 */
import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { PageCursor } from './page-cursor.ts';
import { runBytes } from './run-columns.ts';
import { keyConditions, type RunFilter, valueConditions } from './run-filter.ts';
import { allTimes, type Order, type RunKey, type TimeWindow } from './run-key.ts';
import { type Place, placeOfKeys, placeOfScope, type RunScope } from './run-scope.ts';
import { timeWindows } from './time-windows.ts';

export interface PageRequest {
  readonly scope: RunScope;
  readonly filter: RunFilter;
  readonly order: Order;
  /** Most runs of the page. */
  readonly limitRows: number;
  readonly after?: RunKey | undefined;
  /** Only these runs, whatever else the filter says. */
  readonly among?: readonly RunKey[] | undefined;
}

export interface FoundRun extends RunKey {
  /** Size of its JSON columns. */
  readonly bytes: number;
}

const probedRows = 2_048;
const sliceGrowth = 8;
const leastGrownMicros = 1_000_000;

/**
 * Keys of the runs of a page, in order: one more than asked for where there are more.
 * @throws what the warehouse throws.
 */
export async function findPage(warehouse: Warehouse, request: PageRequest): Promise<FoundRun[]> {
  const { scope, filter, order, after, among, limitRows } = request;
  const wanted = limitRows + 1;
  if (among !== undefined) {
    if (among.length === 0) return [];
    return findKeys(warehouse, request, placeOfKeys(scope.tenantId, among), wanted);
  }
  if (scope.projectIds.length === 0) return [];
  const range = rangeOf(request);
  // A trace is found through its index, however far apart its runs lie.
  if (filter.traceId !== undefined) return findKeys(warehouse, request, placeOfScope(scope, range), wanted);
  const found: FoundRun[] = [];
  const begin = order === 'asc' && after === undefined ? await oldestOf(warehouse, range) : range;
  for await (const slice of slices(warehouse, request, begin)) {
    found.push(...(await findKeys(warehouse, request, placeOfScope(scope, slice), wanted - found.length)));
    if (found.length >= wanted) break;
  }
  return found;
}

/** Slices of `range` in order, each asked for only when those before did not fill the page. */
async function* slices(warehouse: Warehouse, request: PageRequest, range: TimeWindow): AsyncGenerator<TimeWindow> {
  for (const window of timeWindows(range, request.order, Date.now() * 1_000)) {
    const { rows, oldest, newest } = await probe(warehouse, request, window);
    if (rows === 0) continue;
    if (rows < probedRows) {
      yield window;
      continue;
    }
    let slice: TimeWindow | undefined = { fromMicros: oldest, untilMicrosExclusive: newest + 1 };
    for (; slice !== undefined; slice = nextSlice(slice, range, request.order)) yield slice;
    return;
  }
}

/** The slice behind `slice`, wider; nothing at the end of `range`. */
function nextSlice(slice: TimeWindow, range: TimeWindow, order: Order): TimeWindow | undefined {
  const { fromMicros, untilMicrosExclusive } = slice;
  const width = Math.max(untilMicrosExclusive - fromMicros, leastGrownMicros) * sliceGrowth;
  const next =
    order === 'desc'
      ? { fromMicros: Math.max(fromMicros - width, range.fromMicros), untilMicrosExclusive: fromMicros }
      : {
          fromMicros: untilMicrosExclusive,
          untilMicrosExclusive: Math.min(untilMicrosExclusive + width, range.untilMicrosExclusive),
        };
  return next.fromMicros < next.untilMicrosExclusive ? next : undefined;
}

/** Where matching runs can lie, by time alone. */
function rangeOf({ filter, order, after }: PageRequest): TimeWindow {
  let { fromMicros, untilMicrosExclusive } = allTimes;
  if (filter.startedFromMicros !== undefined)
    fromMicros = Math.max(fromMicros, Math.min(filter.startedFromMicros, untilMicrosExclusive));
  if (after !== undefined && order === 'desc') untilMicrosExclusive = after.startTimeMicros + 1;
  if (after !== undefined && order === 'asc') fromMicros = Math.max(fromMicros, after.startTimeMicros);
  return { fromMicros, untilMicrosExclusive };
}

/** `range` from the oldest run of the whole table on, which ClickHouse tells from its partitions without reading a row. */
async function oldestOf(warehouse: Warehouse, range: TimeWindow): Promise<TimeWindow> {
  const [row] = await warehouse.query<{ micros: number }>({
    name: 'oldest-run',
    sql: 'SELECT toUnixTimestamp64Micro(min(start_time)) AS micros FROM runs',
  });
  return { ...range, fromMicros: Math.max(range.fromMicros, row?.micros ?? 0) };
}

/** How many rows, up to a few thousand, the window holds where reading begins, and between which times they lie. */
async function probe(warehouse: Warehouse, { scope, filter, order }: PageRequest, window: TimeWindow) {
  const place = placeOfScope(scope, window);
  const conditions = keyConditions(filter);
  const [row] = await warehouse.query<{ rows: number; oldest: number; newest: number }>({
    ...bind(place, conditions.params),
    name: 'probe-runs',
    sql: `SELECT count() AS rows, toUnixTimestamp64Micro(min(t)) AS oldest, toUnixTimestamp64Micro(max(t)) AS newest FROM (
            SELECT start_time AS t FROM runs
            WHERE ${[place.sql, ...conditions.sql].join(' AND ')}
            ORDER BY start_time ${order} LIMIT ${probedRows})`,
  });
  return row ?? { rows: 0, oldest: 0, newest: 0 };
}

interface KeyRow {
  readonly session_id: string;
  readonly micros: number;
  readonly trace_id: string;
  readonly id: string;
  readonly bytes: number;
}

async function findKeys(warehouse: Warehouse, request: PageRequest, place: Place, limit: number): Promise<FoundRun[]> {
  const { order, after, among } = request;
  // Runs that are named by their ids are wanted whatever else the request says.
  const filter = among === undefined ? request.filter : {};
  const keys = keyConditions(filter);
  const values = valueConditions(filter);
  const position = after === undefined ? undefined : behindCursor({ order, after });
  const rows = await warehouse.query<KeyRow>({
    ...bind(place, keys.params, values.params, position?.params, { wanted: limit }),
    name: 'find-runs',
    sql: `SELECT session_id, toUnixTimestamp64Micro(start_time) AS micros, trace_id, id,
            ${runBytes} AS bytes
          FROM runs FINAL
          PREWHERE ${[place.sql, ...keys.sql].join(' AND ')}
          WHERE ${[...values.sql, ...(position?.sql ?? [])].join(' AND ')}
          ORDER BY start_time ${order}, trace_id ${order}, id ${order}, session_id ${order}
          LIMIT {wanted:UInt64}`,
  });
  return rows.map(({ session_id, micros, trace_id, id, bytes }) => ({
    projectId: session_id,
    startTimeMicros: micros,
    traceId: trace_id,
    runId: id,
    bytes,
  }));
}

/** Compared in ClickHouse: its order of UUIDs is not that of their text. */
function behindCursor({ order, after }: PageCursor) {
  return {
    sql: [
      `(start_time, trace_id, id, session_id) ${order === 'desc' ? '<' : '>'}
        (fromUnixTimestamp64Micro({after_time:Int64}), {after_trace:UUID}, {after_run:UUID}, {after_project:UUID})`,
    ],
    params: {
      after_time: after.startTimeMicros,
      after_trace: after.traceId,
      after_run: after.runId,
      after_project: after.projectId,
    },
  };
}

function bind({ params, external }: Place, ...more: readonly (Place['params'] | undefined)[]) {
  return { params: Object.assign({}, params, ...more) as Place['params'], ...(external && { external }) };
}
