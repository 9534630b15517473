/**
 * Where the next slice of an export ends.
 *
 * `FINAL` reads a window whole, and a day may hold a hundred million runs. So, until the slice is full:
 *
 *   1. A probe without `FINAL` reads times behind the last key in key order, as many as runs are missing, and stops: the stretch
 *      up to the last of them holds at most so many runs and all ties of its last moment.
 *   2. Keys and sizes of that stretch are read with `FINAL`; the slice ends at the last that fits.
 *   3. Rows that merged, or that are no members, leave the slice short of its limit: on behind the stretch.
 */
import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import { runBytes } from '../../runs/run-columns.ts';
import type { ExportCursor, ExportScope, ExportSlice } from '../export-scope.ts';
import { isMember, memberOrder, placeOfMembers } from './members.ts';

/** Runs above this size, however few beside many small ones, may not add up to more in one slice: the encoder meets them at once. */
const heavyRunBytes = 256 * 1024;
const maxHeavyBytes = 48 * 1024 * 1024;

export interface SliceLimits {
  /** At least 1. */
  readonly rows: number;
  /** Of JSON. One run always fits. */
  readonly bytes: number;
}

/**
 * The members of `scope` that follow `after`, as many as the limits allow; without `after` from the beginning of the window.
 * Only keys are read.
 *
 * @returns undefined where none is left.
 * @throws what the warehouse throws, or the reason of `signal`.
 */
export async function findSlice(
  warehouse: Warehouse,
  scope: ExportScope,
  after: ExportCursor | undefined,
  limits: SliceLimits,
  signal?: AbortSignal,
): Promise<ExportSlice | undefined> {
  const { untilMicrosExclusive } = scope.window;
  let slice: ExportSlice | undefined;
  let heavyBytes = 0;
  let from = scope.window.fromMicros;
  while (from < untilMicrosExclusive) {
    const missing = {
      rows: limits.rows - (slice?.rows ?? 0),
      bytes: limits.bytes - (slice?.bytes ?? 0),
      heavyBytes: maxHeavyBytes - heavyBytes,
    };
    const behind = slice?.last ?? after;
    const reach = await probe(warehouse, scope, behind, from, missing.rows, signal);
    if (reach === undefined) break;
    const found = await fill(warehouse, scope, behind, from, reach, missing, signal);
    if (found.end !== undefined) {
      const { place, total, heavy, ...last } = found.end;
      if (slice !== undefined && (total > missing.bytes || heavy > missing.heavyBytes)) break;
      heavyBytes += heavy;
      slice = { after, last, rows: (slice?.rows ?? 0) + place, bytes: (slice?.bytes ?? 0) + total };
      if (found.isFull || slice.rows >= limits.rows) break;
    }
    from = reach;
  }
  return slice;
}

/** The end of the stretch that holds the next `rows` stored rows, exclusive; undefined where there are none. */
async function probe(
  warehouse: Warehouse,
  scope: ExportScope,
  after: ExportCursor | undefined,
  fromMicros: number,
  rows: number,
  signal: AbortSignal | undefined,
): Promise<number | undefined> {
  const { untilMicrosExclusive } = scope.window;
  const { sql, params } = placeOfMembers(scope, { after, window: { fromMicros, untilMicrosExclusive } });
  const [row] = await warehouse.query<{ rows: number; newest: number }>({
    name: 'probe-export',
    sql: `SELECT count() AS rows, toUnixTimestamp64Micro(max(t)) AS newest FROM (
            SELECT start_time AS t FROM runs WHERE ${sql} ORDER BY start_time LIMIT {wanted:UInt64})`,
    params: { ...params, wanted: rows },
    ...(signal && { signal }),
  });
  if (row === undefined || row.rows === 0) return undefined;
  return row.rows < rows ? untilMicrosExclusive : row.newest + 1;
}

interface EndRow {
  readonly micros: number;
  readonly trace_id: string;
  readonly id: string;
  readonly place: number;
  readonly total: number;
  readonly heavy: number;
  readonly found: number;
}

interface Filled {
  /** The last run that fits, the how manieth it is, and the bytes up to it. Where none fits, the first. */
  readonly end: (ExportCursor & { readonly place: number; readonly total: number; readonly heavy: number }) | undefined;
  /** Whether there was one more. */
  readonly isFull: boolean;
}

async function fill(
  warehouse: Warehouse,
  scope: ExportScope,
  after: ExportCursor | undefined,
  fromMicros: number,
  untilMicrosExclusive: number,
  limits: SliceLimits & { readonly heavyBytes: number },
  signal: AbortSignal | undefined,
): Promise<Filled> {
  const { sql, params } = placeOfMembers(scope, { after, window: { fromMicros, untilMicrosExclusive } });
  const [row] = await warehouse.query<EndRow>({
    name: 'find-slice',
    sql: `SELECT toUnixTimestamp64Micro(start_time) AS micros, trace_id, id, place, total, heavy, found FROM (
            SELECT start_time, trace_id, id, row_number() OVER w AS place, sum(bytes) OVER w AS total,
              sumIf(bytes, bytes > ${heavyRunBytes}) OVER w AS heavy, count() OVER () AS found
            FROM (
              SELECT start_time, trace_id, id, ${runBytes} AS bytes
              FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at) AND ${isMember}
              ORDER BY ${memberOrder} LIMIT {wanted:UInt64})
            WINDOW w AS (ORDER BY ${memberOrder} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
          WHERE place = 1 OR (total <= {bytes:Int64} AND heavy <= {heavy:Int64} AND place < {wanted:UInt64})
          ORDER BY place DESC LIMIT 1`,
    // One more than fits tells whether the stretch is used up.
    params: {
      ...params,
      wanted: limits.rows + 1,
      bytes: Math.max(limits.bytes, 0),
      heavy: Math.max(limits.heavyBytes, 0),
    },
    ...(signal && { signal }),
  });
  if (row === undefined) return { end: undefined, isFull: false };
  const { micros, trace_id, id, place, total, heavy, found } = row;
  return { end: { startTimeMicros: micros, traceId: trace_id, runId: id, place, total, heavy }, isFull: found > place };
}
