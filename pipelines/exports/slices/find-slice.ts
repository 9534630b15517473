/**
 * Finds the end of the next slice of an export.
 *
 * `FINAL` reads a whole window, and a day may contain a hundred million runs. Therefore these steps repeat until the
 * slice is full:
 *
 *   1. A probe without `FINAL` reads start times after the last key in key order, as many as runs are missing, and
 *      stops. The time range up to the last of them contains at most that many runs, plus all ties of its last
 *      timestamp.
 *   2. Keys and sizes in that range are read with `FINAL`; the slice ends at the last run that fits.
 *   3. If rows merged or are not members, the slice is still below its limit, and the search continues after the range.
 */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { runBytes } from '../../runs/run-columns.ts';
import type { ExportCursor, ExportScope, ExportSlice } from '../export-scope.ts';
import { isMember, memberOrder, membersCondition } from './members.ts';

/**
 * Limits the total size of large runs in a slice: the encoder may hold all of them at once, even if they are few among
 * many small ones.
 */
const heavyRunBytes = 256 * 1024;
const maxHeavyBytes = 48 * 1024 * 1024;

export interface SliceLimits {
  /** At least 1. */
  readonly rows: number;
  /** Total size of the JSON columns. One run always fits. */
  readonly bytes: number;
}

/**
 * The members of `scope` after `after`, as many as the limits allow; without `after`, from the start of the window.
 * Reads keys and sizes only.
 *
 * @returns undefined if no member is left.
 * @throws errors of ClickHouse, or the reason of `signal`.
 */
export async function findSlice(
  clickhouse: ClickHouse,
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
    const position = slice?.last ?? after;
    const rangeEnd = await probe(clickhouse, scope, position, from, missing.rows, signal);
    if (rangeEnd === undefined) break;
    const found = await findEnd(clickhouse, scope, position, from, rangeEnd, missing, signal);
    if (found.end !== undefined) {
      const { ordinal, total, heavy, ...last } = found.end;
      if (slice !== undefined && (total > missing.bytes || heavy > missing.heavyBytes)) break;
      heavyBytes += heavy;
      slice = { after, last, rows: (slice?.rows ?? 0) + ordinal, bytes: (slice?.bytes ?? 0) + total };
      if (found.isFull || slice.rows >= limits.rows) break;
    }
    from = rangeEnd;
  }
  return slice;
}

/** Exclusive end of the time range that contains the next `rows` stored rows; undefined if there are none. */
async function probe(
  clickhouse: ClickHouse,
  scope: ExportScope,
  after: ExportCursor | undefined,
  fromMicros: number,
  rows: number,
  signal: AbortSignal | undefined,
): Promise<number | undefined> {
  const { untilMicrosExclusive } = scope.window;
  const { sql, params } = membersCondition(scope, { after, window: { fromMicros, untilMicrosExclusive } });
  const [row] = await clickhouse.query<{ rows: number; newest: number }>({
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
  readonly ordinal: number;
  readonly total: number;
  readonly heavy: number;
  readonly found: number;
}

interface Filled {
  /** The last run that fits, its position in the range, and the bytes up to it. If none fits, the first run. */
  readonly end:
    | (ExportCursor & { readonly ordinal: number; readonly total: number; readonly heavy: number })
    | undefined;
  /** Whether at least one more run follows in the range. */
  readonly isFull: boolean;
}

async function findEnd(
  clickhouse: ClickHouse,
  scope: ExportScope,
  after: ExportCursor | undefined,
  fromMicros: number,
  untilMicrosExclusive: number,
  limits: SliceLimits & { readonly heavyBytes: number },
  signal: AbortSignal | undefined,
): Promise<Filled> {
  const { sql, params } = membersCondition(scope, { after, window: { fromMicros, untilMicrosExclusive } });
  const [row] = await clickhouse.query<EndRow>({
    name: 'find-slice',
    sql: `SELECT toUnixTimestamp64Micro(start_time) AS micros, trace_id, id, ordinal, total, heavy, found FROM (
            SELECT start_time, trace_id, id, row_number() OVER w AS ordinal, sum(bytes) OVER w AS total,
              sumIf(bytes, bytes > ${heavyRunBytes}) OVER w AS heavy, count() OVER () AS found
            FROM (
              SELECT start_time, trace_id, id, ${runBytes} AS bytes
              FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at) AND ${isMember}
              ORDER BY ${memberOrder} LIMIT {wanted:UInt64})
            WINDOW w AS (ORDER BY ${memberOrder} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
          WHERE ordinal = 1 OR (total <= {bytes:Int64} AND heavy <= {heavy:Int64} AND ordinal < {wanted:UInt64})
          ORDER BY ordinal DESC LIMIT 1`,
    // One row more than fits shows whether the range is exhausted.
    params: {
      ...params,
      wanted: limits.rows + 1,
      bytes: Math.max(limits.bytes, 0),
      heavy: Math.max(limits.heavyBytes, 0),
    },
    ...(signal && { signal }),
  });
  if (row === undefined) return { end: undefined, isFull: false };
  const { micros, trace_id, id, ordinal, total, heavy, found } = row;
  return {
    end: { startTimeMicros: micros, traceId: trace_id, runId: id, ordinal, total, heavy },
    isFull: found > ordinal,
  };
}
