/** Finds and reads the members of an export run, one chunk after another. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { type DerivedFiles, maxListBytes, type ParquetFooter } from '../../infra/duckdb/encode-sql.ts';
import type { Encoder } from '../../infra/duckdb/encoder.ts';
import type { ExportField } from '../../schemas/parquet/run-columns.ts';
import { costExpressions } from '../costs/cost-sql.ts';
import { runBytes } from '../runs/run-columns.ts';
import { buildSelectList } from './chunk-columns.ts';
import { readDerivedValues } from './derived-values.ts';
import {
  buildMembersCondition,
  buildMembersFilter,
  type ExportCursor,
  exportableCondition,
  type MemberRange,
  type MembersCondition,
  memberCondition,
  memberOrder,
} from './members.ts';
import type { ExportFormat, ExportScope } from './record.ts';

/** A sequence of consecutive members of a scope: the members after `after`, up to and including `last`. */
export interface ExportChunk {
  /** Cursor before the chunk; undefined if the chunk begins at the start of the window. */
  readonly after: ExportCursor | undefined;
  readonly last: ExportCursor;
  /**
   * Number of members at the time when the chunk was found. Later deletions can reduce this number, and patches that
   * change whether a run matches the filter can change it.
   */
  readonly rows: number;
  /** Total size of the JSON columns in bytes. */
  readonly bytes: number;
}

/**
 * Size above which a run is considered large. The total size of the large runs in a chunk is limited by
 * `maxHeavyBytes`, because the encoder may hold all of them in memory at once, even if the chunk consists mostly of
 * small runs.
 */
const heavyRunBytes = 256 * 1024;
const maxHeavyBytes = 48 * 1024 * 1024;

export interface ChunkLimits {
  /** Maximum number of rows; at least 1. */
  readonly rows: number;
  /** Maximum total size of the JSON columns in bytes. A chunk that consists of a single run may exceed this limit. */
  readonly bytes: number;
  /**
   * Number of stored rows after which a chunk ends, also if few of them are members. Reading a chunk takes time and memory for
   * all rows between its ends. Default: no limit.
   */
  readonly storedRows?: number;
}

/** A probe reads at least this fraction of a full chunk, so that a nearly full chunk does not need very many probes. */
const minProbeDivisor = 10;
const lastUuid = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/**
 * Finds the next chunk: as many members of `scope` after `after` as the limits allow. If `after` is undefined, the
 * chunk begins at the start of the window. Reads only keys and sizes.
 *
 * `FINAL` reads a whole window, and a day may contain a hundred million runs. Therefore these steps are repeated until
 * the chunk is full:
 *   1. A probe without `FINAL` reads start times in key order, beginning after the last key, and stops when it has
 *      read as many rows as the chunk still lacks, or a tenth of a full chunk if that is more. The time range up to the
 *      last of these times contains at most that many runs, plus further runs with the same last timestamp.
 *   2. Keys and sizes in that range are read with `FINAL`; the chunk ends at the last run that fits.
 *   3. If some of the rows were merged or are not members, the chunk is still below its limits, and the search
 *      continues after the range. After `storedRows` rows the chunk ends or, if it has no member, begins there.
 *
 * @returns undefined if no member is left.
 * @throws errors of ClickHouse, or the reason of `signal`.
 */
export async function findChunk(
  clickhouse: ClickHouse,
  scope: ExportScope,
  after: ExportCursor | undefined,
  limits: ChunkLimits,
  signal?: AbortSignal,
): Promise<ExportChunk | undefined> {
  const { untilMicrosExclusive } = scope.window;
  let chunk: ExportChunk | undefined;
  let begin = after;
  const maxStoredRows = limits.storedRows ?? Number.POSITIVE_INFINITY;
  let storedRows = 0;
  let heavyBytes = 0;
  let from = scope.window.fromMicros;
  while (from < untilMicrosExclusive) {
    const missing = {
      rows: limits.rows - (chunk?.rows ?? 0),
      bytes: limits.bytes - (chunk?.bytes ?? 0),
      heavyBytes: maxHeavyBytes - heavyBytes,
    };
    const range = { after: chunk?.last ?? begin, window: { fromMicros: from, untilMicrosExclusive } };
    const probedRows = Math.min(
      Math.max(missing.rows, Math.ceil(limits.rows / minProbeDivisor)),
      maxStoredRows - storedRows,
    );
    const rangeEnd = await probe(clickhouse, scope, range, probedRows, signal);
    if (rangeEnd === undefined) break;
    const probed = { ...range, window: { fromMicros: from, untilMicrosExclusive: rangeEnd } };
    const found = await findChunkEnd(clickhouse, scope, probed, missing, signal);
    if (found.end !== undefined) {
      const { ordinal, total, heavy, ...last } = found.end;
      if (chunk !== undefined && (total > missing.bytes || heavy > missing.heavyBytes)) break;
      heavyBytes += heavy;
      chunk = { after: begin, last, rows: (chunk?.rows ?? 0) + ordinal, bytes: (chunk?.bytes ?? 0) + total };
      if (found.isFull || chunk.rows >= limits.rows) break;
    }
    from = rangeEnd;
    storedRows += probedRows;
    if (storedRows < maxStoredRows) continue;
    if (chunk !== undefined) break;
    begin = { startTimeMicros: rangeEnd - 1, traceId: lastUuid, runId: lastUuid };
    storedRows = 0;
  }
  return chunk;
}

/**
 * Finds the exclusive end of the time that contains the first `rows` stored rows of the range. Returns undefined if the
 * range contains none.
 */
async function probe(
  clickhouse: ClickHouse,
  scope: ExportScope,
  range: MemberRange,
  rows: number,
  signal: AbortSignal | undefined,
): Promise<number | undefined> {
  const { sql, params } = buildMembersCondition(scope, range);
  const [row] = await clickhouse.query<{ rows: number; newest: number }>({
    name: 'probe-export',
    sql: `SELECT count() AS rows, toUnixTimestamp64Micro(max(t)) AS newest FROM (
            SELECT start_time AS t FROM runs WHERE ${sql} ORDER BY start_time LIMIT {limit:UInt64})`,
    params: { ...params, limit: rows },
    ...(signal && { signal }),
  });
  if (row === undefined || row.rows === 0) return undefined;
  return row.rows < rows ? scope.window.untilMicrosExclusive : row.newest + 1;
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

interface FilledChunk {
  /**
   * The last run that fits, its position in the range, and the total size up to and including it. If no run fits, the
   * first run of the range; undefined if the range contains no members.
   */
  readonly end:
    | (ExportCursor & { readonly ordinal: number; readonly total: number; readonly heavy: number })
    | undefined;
  /** Whether the range contains at least one more run after `end`. */
  readonly isFull: boolean;
}

async function findChunkEnd(
  clickhouse: ClickHouse,
  scope: ExportScope,
  range: MemberRange,
  limits: ChunkLimits & { readonly heavyBytes: number },
  signal: AbortSignal | undefined,
): Promise<FilledChunk> {
  const condition = buildMembersCondition(scope, range);
  const filter = buildMembersFilter(scope, condition);
  const [row] = await clickhouse.query<EndRow>({
    name: 'find-chunk',
    settings: filter.settings,
    sql: `${filter.withSql} SELECT toUnixTimestamp64Micro(start_time) AS micros, trace_id, id, ordinal, total, heavy, found FROM (
            SELECT start_time, trace_id, id, row_number() OVER w AS ordinal, sum(bytes) OVER w AS total,
              sumIf(bytes, bytes > ${heavyRunBytes}) OVER w AS heavy, count() OVER () AS found
            FROM (
              SELECT start_time, trace_id, id, ${runBytes} AS bytes
              FROM runs FINAL PREWHERE ${condition.sql} WHERE ${[exportableCondition, memberCondition, ...filter.sql].join(' AND ')}
              ORDER BY ${memberOrder} LIMIT {limit:UInt64})
            WINDOW w AS (ORDER BY ${memberOrder} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
          WHERE ordinal = 1 OR (total <= {bytes:Int64} AND heavy <= {heavy:Int64} AND ordinal < {limit:UInt64})
          ORDER BY ordinal DESC LIMIT 1`,
    // The query requests one row more than fits, to detect whether the range is exhausted.
    params: {
      ...condition.params,
      ...filter.params,
      limit: limits.rows + 1,
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

const windowRows = 256;
const maxBlockBytes = 8 * 1024 * 1024;
const maxBlockRows = 1_024;

interface RowLimits {
  /** Maximum number of rows that ClickHouse may process as one block when it writes the selected runs. */
  readonly block: number;
  /** Maximum number of rows in a row group of the source file, so that DuckDB can convert their lists. */
  readonly group: number;
}

/**
 * Computes the maximum sizes of blocks and row groups. The rows of a block form one row group of the file, and DuckDB
 * holds a whole row group in memory. Therefore blocks must be small where large runs are close together; elsewhere small
 * blocks only cost time. The query reads without `FINAL`; rows that are not merged yet only make the result smaller.
 */
async function computeRowLimits(
  clickhouse: ClickHouse,
  { sql, params }: MembersCondition,
  format: ExportFormat,
  signal: AbortSignal,
): Promise<RowLimits> {
  const near = (bytes: string) =>
    `sum(${bytes}) OVER (ORDER BY ${memberOrder} ROWS BETWEEN ${windowRows - 1} PRECEDING AND CURRENT ROW)`;
  const [row] = await clickhouse.query<{ bytes: number; lists: number }>({
    name: 'size-blocks',
    sql: `SELECT max(near) AS bytes, max(near_lists) AS lists FROM (
            SELECT ${near('bytes')} AS near, ${near('list_bytes')} AS near_lists
            FROM (SELECT ${memberOrder}, ${runBytes} AS bytes, ${buildListBytesSql(format)} AS list_bytes FROM runs WHERE ${sql}))`,
    params,
    signal,
  });
  const countRows = (maxBytes: number, bytes = 0) =>
    Math.max(1, Math.floor((windowRows * maxBytes) / Math.max(bytes, 1)));
  const group = countRows(maxListBytes, row?.lists);
  return { block: Math.min(maxBlockRows, countRows(maxBlockBytes, row?.bytes), group), group };
}

/** Columns whose texts become lists, by field. */
const listSources: Partial<Record<ExportField, string>> = { parent_run_ids: 'dotted_order', tags: 'tags' };

/** Builds the SQL of the size of these texts in a run, in bytes. Files of version v1 have no lists. */
function buildListBytesSql({ fields, version }: ExportFormat): string {
  const columns = version === 'v1' ? [] : fields.flatMap((field) => listSources[field as ExportField] ?? []);
  return ['0', ...columns.map((column) => `ifNull(length(${column}), 0)`)].join(' + ');
}

export interface ChunkDeps {
  readonly clickhouse: ClickHouse;
  readonly encoder: Encoder;
}

export interface ChunkRequest {
  readonly scope: ExportScope;
  readonly chunk: ExportChunk;
  readonly format: ExportFormat;
  /**
   * Absolute path of an existing folder. Only this chunk may use it, because files of another chunk would be
   * overwritten.
   */
  readonly folder: string;
}

/** The files that contain a chunk that was read. File names are relative to the folder of the chunk. */
export interface ChunkFiles {
  readonly source: string;
  readonly derived: DerivedFiles | undefined;
  readonly rows: number;
  /** Row groups of the source file. */
  readonly groups: ParquetFooter['groups'];
}

const sourceFileName = 'chunk.parquet';
/** Timeout for reading a chunk. Reading may be slow, because a chunk may have gigabytes. */
const readTimeoutMs = 3_600_000;
/**
 * Maximum size of a row group in the source file. DuckDB holds 2,048 rows or one row group of its source in memory,
 * whichever is less.
 */
const sourceGroupBytes = 8 * 1024 * 1024;
const maxSourceGroupRows = 16_384;
/** Approximate size of a row without its JSON columns, in bytes. */
const baseRowBytes = 600;

/**
 * Reads a chunk into `<folder>/chunk.parquet`. The file contains the runs after `chunk.after` up to `chunk.last` that
 * are still members of the scope, in order and with their current values. If the rows do not contain the values of all
 * fields, further files contain the derived values. If these are so large that fewer rows fit into the memory of DuckDB,
 * the chunk is read again with smaller row groups.
 *
 * @returns the file names, and the row counts from the footer of the file.
 * @throws errors of ClickHouse and the encoder, WORK_FILE_UNUSABLE, or the reason of `signal`; in this case no file is
 *   left.
 */
export async function readChunk(deps: ChunkDeps, request: ChunkRequest, signal: AbortSignal): Promise<ChunkFiles> {
  const { scope, chunk, format, folder } = request;
  const fields = format.fields as readonly ExportField[];
  const condition = buildMembersCondition(scope, chunk);
  const rowBytes = baseRowBytes + chunk.bytes / Math.max(chunk.rows, 1);
  const fittingRows = Math.max(1, Math.floor(sourceGroupBytes / rowBytes));
  try {
    let limits = await computeRowLimits(deps.clickhouse, condition, format, signal);
    limits = { ...limits, group: Math.min(maxSourceGroupRows, limits.group, fittingRows) };
    for (;;) {
      const footer = await readSource(deps, request, condition, limits, signal);
      const derivedRequest = { scope, condition, fields, folder, source: sourceFileName, footer };
      const derived = footer.rows === 0 ? undefined : await readDerivedValues(deps, derivedRequest, signal);
      if (derived === undefined || derived.rowsAtOnce >= Math.min(limits.group, vectorRows))
        return { source: sourceFileName, derived, rows: footer.rows, groups: footer.groups };
      await removeDerivedFiles(derived, folder);
      limits = { block: Math.min(limits.block, derived.rowsAtOnce), group: derived.rowsAtOnce };
    }
  } catch (error) {
    await rm(join(folder, sourceFileName), { force: true });
    throw error;
  }
}

/** Number of rows that DuckDB processes at once, unless a row group or a file ends. */
const vectorRows = 2_048;

export async function removeDerivedFiles(derived: DerivedFiles | undefined, folder: string): Promise<void> {
  for (const { name } of derived?.files ?? []) await rm(join(folder, name), { force: true });
}

async function readSource(
  { clickhouse, encoder }: ChunkDeps,
  { scope, format, folder }: ChunkRequest,
  condition: MembersCondition,
  limits: RowLimits,
  signal: AbortSignal,
): Promise<ParquetFooter> {
  const filter = buildMembersFilter(scope, condition);
  await clickhouse.queryToFile({
    name: 'read-chunk',
    sql: `WITH ${[costExpressions, ...filter.expressions].join(', ')} SELECT ${buildSelectList(format.fields as readonly ExportField[])}
      FROM runs FINAL PREWHERE ${condition.sql}
      WHERE ${[exportableCondition, memberCondition, ...filter.sql].join(' AND ')} ORDER BY ${memberOrder}`,
    params: { ...condition.params, ...filter.params },
    settings: {
      ...filter.settings,
      max_block_size: String(limits.block),
      output_format_parquet_row_group_size: String(limits.group),
      output_format_parquet_row_group_size_bytes: String(sourceGroupBytes),
    },
    format: 'Parquet',
    path: join(folder, sourceFileName),
    timeoutMs: readTimeoutMs,
    signal,
  });
  return encoder.inspect({ folder, source: sourceFileName }, signal);
}
