/**
 * Divides the time range of a page into slices that each contain about as many rows as the page needs, because a query
 * with `FINAL` cannot stop early:
 *   1. The time range is divided into consecutive windows, each wider than the one before. A probe without `FINAL`
 *      reads the start times of a window in key order, stops after some thousand rows of a shard and returns the time range
 *      of these rows, which is the slice. A window with fewer rows is one slice; an empty window is skipped. If the window has
 *      enough rows to show how dense the runs are, but fewer than the slice, the slice is wider than the window.
 *   2. If thousands of rows did not fill the page, few runs match. Further slices are not probed; each is several times as
 *      wide as the one before.
 *
 * The number of slices is therefore bounded, even if few runs match and are far apart.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { startRoundingMicros } from '../ingest/run-event/times.ts';
import { findStartRange } from './filter/run-filter.ts';
import type { PageRequest } from './key-query.ts';
import { allTimes, type Order, type TimeWindow } from './run-columns.ts';
import { buildKeyConditions, buildScopeCondition } from './run-scope.ts';

/**
 * Maximum number of rows of the first slice on a shard. So many show how dense the runs are: the next window is not probed.
 */
export const maxProbedRows = 2_048;
const minSliceMicros = 1_000_000;

const dayMicros = 86_400_000_000;

/** Widths of the first four windows. The fifth window contains all remaining times. */
const windowWidthsMicros = [1, 8, 64, 512].map((days) => days * dayMicros);

/**
 * Divides `range` into consecutive windows in `order`, each wider than the one before. This bounds both the work of one
 * query and the number of queries.
 *
 * @param nowMicros If the order is `desc` and the range ends after this time, the windows are measured back from this
 *   time; the first window also contains the later times.
 */
export function* generateTimeWindows(range: TimeWindow, order: Order, nowMicros: number): Generator<TimeWindow> {
  let { fromMicros, untilMicrosExclusive } = range;
  let edge = order === 'desc' ? Math.min(untilMicrosExclusive, nowMicros) : fromMicros;
  for (const width of [...windowWidthsMicros, Number.POSITIVE_INFINITY]) {
    if (fromMicros >= untilMicrosExclusive) return;
    if (order === 'desc') {
      edge = Math.max(fromMicros, edge - width);
      yield { fromMicros: edge, untilMicrosExclusive };
      untilMicrosExclusive = edge;
    } else {
      edge = Math.min(untilMicrosExclusive, edge + width);
      yield { fromMicros, untilMicrosExclusive: edge };
      fromMicros = edge;
    }
  }
}

export interface SliceOptions {
  /** Maximum number of rows of the first slice on a shard. */
  readonly probedRows: number;
  /** Factor by which the next slice is wider than the previous one. */
  readonly growth: number;
}

/**
 * Generates the slices of a page in order, each only when the previous ones did not fill the page. The growth in `slicing`
 * may change meanwhile.
 */
export async function* generateSlices(
  clickhouse: ClickHouse,
  request: PageRequest,
  slicing: SliceOptions,
): AsyncGenerator<TimeWindow> {
  const { order, after } = request;
  const whole = boundTimeRange(request);
  const isClipped = order === 'asc' && after === undefined;
  const range = isClipped ? await clipToStoredTimes(clickhouse, whole) : whole;
  for (const window of generateTimeWindows(range, order, Date.now() * 1_000)) {
    const { rows, oldest, newest, isWhole } = await probe(clickhouse, request, window, slicing.probedRows);
    if (rows === 0) continue;
    if (rows < maxProbedRows) {
      yield window;
      continue;
    }
    const first = {
      fromMicros: isWhole && order === 'desc' ? window.fromMicros : oldest,
      untilMicrosExclusive: isWhole && order === 'asc' ? window.untilMicrosExclusive : newest + 1,
    };
    const widened = isWhole ? widen(first, range, order, slicing.probedRows / rows) : first;
    yield widened;
    const stored = isClipped ? range : await clipToStoredTimes(clickhouse, range);
    let slice = computeNextSlice(widened, stored, order, slicing.growth);
    for (; slice !== undefined; slice = computeNextSlice(slice, stored, order, slicing.growth)) yield slice;
    return;
  }
}

/** Returns the slice with its end moved on within `range`, so that it is `factor` times as wide, if that is more. */
function widen(slice: TimeWindow, range: TimeWindow, order: Order, factor: number): TimeWindow {
  const { fromMicros, untilMicrosExclusive } = slice;
  const width = Math.ceil((untilMicrosExclusive - fromMicros) * Math.max(factor, 1));
  return order === 'desc'
    ? { fromMicros: Math.max(untilMicrosExclusive - width, range.fromMicros), untilMicrosExclusive }
    : { fromMicros, untilMicrosExclusive: Math.min(fromMicros + width, range.untilMicrosExclusive) };
}

/** Returns the next slice after `slice`, which is wider; returns undefined at the end of `range`. */
function computeNextSlice(slice: TimeWindow, range: TimeWindow, order: Order, growth: number): TimeWindow | undefined {
  const { fromMicros, untilMicrosExclusive } = slice;
  const width = Math.max(untilMicrosExclusive - fromMicros, minSliceMicros) * growth;
  const [restFrom, restUntil] =
    order === 'desc' ? [range.fromMicros, fromMicros] : [untilMicrosExclusive, range.untilMicrosExclusive];
  if (restFrom >= restUntil) return undefined;
  // A last slice that is smaller than the one before it is not worth a query of its own.
  if (restUntil - restFrom <= 2 * width) return { fromMicros: restFrom, untilMicrosExclusive: restUntil };
  return order === 'desc'
    ? { fromMicros: restUntil - width, untilMicrosExclusive: restUntil }
    : { fromMicros: restFrom, untilMicrosExclusive: restFrom + width };
}

/** Returns the time range that contains all matching runs. */
export function boundTimeRange({ filter, order, after }: Pick<PageRequest, 'filter' | 'order' | 'after'>): TimeWindow {
  const started = findStartRange(filter.selectsThreads ? undefined : filter.conditions);
  let fromMicros = Math.max(allTimes.fromMicros, started.from - startRoundingMicros);
  let untilMicrosExclusive = Math.min(allTimes.untilMicrosExclusive, started.until + startRoundingMicros + 1);
  if (filter.startedFromMicros !== undefined)
    fromMicros = Math.max(fromMicros, Math.min(filter.startedFromMicros - startRoundingMicros, untilMicrosExclusive));
  if (filter.startedBeforeMicros !== undefined)
    untilMicrosExclusive = Math.min(untilMicrosExclusive, filter.startedBeforeMicros + startRoundingMicros);
  if (after !== undefined && order === 'desc')
    untilMicrosExclusive = Math.min(untilMicrosExclusive, after.startTimeMicros + 1);
  if (after !== undefined && order === 'asc') fromMicros = Math.max(fromMicros, after.startTimeMicros);
  return { fromMicros, untilMicrosExclusive };
}

/**
 * Returns `range` without the times before the oldest and after the newest run of the whole table. ClickHouse reads these
 * times from partition metadata.
 */
async function clipToStoredTimes(clickhouse: ClickHouse, range: TimeWindow): Promise<TimeWindow> {
  const [row] = await clickhouse.query<{ oldest: number; newest: number }>({
    name: 'stored-times',
    sql: `SELECT toUnixTimestamp64Micro(min(start_time)) AS oldest, toUnixTimestamp64Micro(max(start_time)) AS newest FROM runs`,
  });
  if (row === undefined) return range;
  return {
    fromMicros: Math.max(range.fromMicros, row.oldest),
    untilMicrosExclusive: Math.min(range.untilMicrosExclusive, row.newest + 1),
  };
}

/**
 * Counts rows of the window, up to the limit on each shard, in reading order. Returns the count, the time range of which all
 * rows are counted, and whether that is all of the window.
 */
async function probe(
  clickhouse: ClickHouse,
  { scope, filter, order }: PageRequest,
  window: TimeWindow,
  probedRows: number,
) {
  const keyRange = buildScopeCondition(scope, window);
  const conditions = buildKeyConditions(filter);
  const shards = await clickhouse.query<{ rows: number; oldest: number; newest: number }>({
    ...keyRange,
    params: { ...keyRange.params, ...conditions.params },
    name: 'probe-runs',
    shardTables: ['runs'],
    settings: lookupSettings,
    sql: `SELECT count() AS rows, toUnixTimestamp64Micro(min(t)) AS oldest, toUnixTimestamp64Micro(max(t)) AS newest FROM (
            SELECT start_time AS t FROM {stored_runs:Identifier}
            WHERE ${[keyRange.sql, ...conditions.sql].join(' AND ')}
            ORDER BY start_time ${order} LIMIT ${probedRows})`,
  });
  const stored = shards.filter(({ rows }) => rows > 0);
  const limited = stored.filter(({ rows }) => rows === probedRows);
  return {
    rows: stored.reduce((sum, { rows }) => sum + rows, 0),
    oldest: Math.max(
      Math.min(...stored.map((shard) => shard.oldest)),
      ...(order === 'desc' ? limited.map((shard) => shard.oldest) : []),
    ),
    newest: Math.min(
      Math.max(...stored.map((shard) => shard.newest)),
      ...(order === 'asc' ? limited.map((shard) => shard.newest) : []),
    ),
    isWhole: limited.length === 0,
  };
}
