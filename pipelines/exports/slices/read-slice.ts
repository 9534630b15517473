import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { DerivedFile, ParquetFacts } from '../../../infra/duckdb/encode-request.ts';
import type { Encoder } from '../../../infra/duckdb/encoder.ts';
import type { ExportField } from '../../../schemas/parquet/run-columns.ts';
import { runBytes } from '../../runs/run-columns.ts';
import type { ExportFormat, ExportScope, ExportSlice } from '../export-scope.ts';
import { isMember, type MembersCondition, memberOrder, membersCondition } from './members.ts';
import { readDerivedValues } from './read-derived.ts';
import { selectOf } from './slice-columns.ts';

const nearRows = 256;
const maxBlockBytes = 8 * 1024 * 1024;
const maxBlockRows = 1_024;

/**
 * Number of rows that ClickHouse may process as one block when it writes the selected runs. The rows of a block go into
 * one row group of the file, and DuckDB holds a whole group in memory. Blocks must therefore be small if large runs are
 * close together; otherwise small blocks only cost time. Unmerged rows only make the result smaller.
 */
async function blockRows(
  clickhouse: ClickHouse,
  { sql, params }: MembersCondition,
  signal: AbortSignal,
): Promise<number> {
  const [row] = await clickhouse.query<{ bytes: number }>({
    name: 'size-blocks',
    sql: `SELECT max(near) AS bytes FROM (
            SELECT sum(bytes) OVER (ORDER BY ${memberOrder} ROWS BETWEEN ${nearRows - 1} PRECEDING AND CURRENT ROW) AS near
            FROM (SELECT ${memberOrder}, ${runBytes} AS bytes FROM runs WHERE ${sql}))`,
    params,
    signal,
  });
  const rows = Math.floor((nearRows * maxBlockBytes) / Math.max(row?.bytes ?? 0, 1));
  return Math.max(1, Math.min(maxBlockRows, rows));
}

export interface SliceDeps {
  readonly clickhouse: ClickHouse;
  readonly encoder: Encoder;
}

export interface SliceRequest {
  readonly scope: ExportScope;
  readonly slice: ExportSlice;
  readonly format: ExportFormat;
  /** Absolute path of an existing folder that only this slice uses: files of an earlier slice in it would be overwritten. */
  readonly folder: string;
}

/** A slice as files in its folder. */
export interface SliceFiles {
  readonly source: string;
  readonly derived: DerivedFile | undefined;
  readonly rows: number;
  /** Row groups of the source. */
  readonly groups: ParquetFacts['groups'];
}

const source = 'slice.parquet';
/** A slice may have gigabytes. */
const timeoutMs = 3_600_000;
/** DuckDB holds 2,048 rows or one row group of its source in memory, whichever is less. */
const sourceGroupBytes = 8 * 1024 * 1024;
const maxSourceGroupRows = 16_384;
/** Approximate size of a row without its JSON columns. */
const otherRowBytes = 600;

/**
 * Reads a slice with current values into `<folder>/slice.parquet`: the runs after `slice.after` up to `slice.last` that
 * still belong to the scope, in order. If the fields need it, a second file holds the values that the rows do not
 * contain.
 *
 * @returns the file names, and the row counts from the file's own footer.
 * @throws errors of ClickHouse and the encoder, WORK_FILE_UNUSABLE, or the reason of `signal`; then it leaves no file.
 */
export async function readSlice(
  { clickhouse, encoder }: SliceDeps,
  { scope, slice, format, folder }: SliceRequest,
  signal: AbortSignal,
): Promise<SliceFiles> {
  const fields = format.fields as readonly ExportField[];
  const { sql, params } = membersCondition(scope, slice);
  const rowBytes = otherRowBytes + slice.bytes / Math.max(slice.rows, 1);
  const groupRows = Math.min(maxSourceGroupRows, Math.max(1, Math.floor(sourceGroupBytes / rowBytes)));
  try {
    await clickhouse.queryToFile({
      name: 'read-slice',
      sql: `SELECT ${selectOf(fields)} FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at) AND ${isMember}
        ORDER BY ${memberOrder}`,
      params,
      settings: {
        max_block_size: String(await blockRows(clickhouse, { sql, params }, signal)),
        output_format_parquet_row_group_size: String(groupRows),
        output_format_parquet_row_group_size_bytes: String(sourceGroupBytes),
      },
      format: 'Parquet',
      path: join(folder, source),
      timeoutMs,
      signal,
    });
    const facts = await encoder.inspect({ folder, source }, signal);
    const derived =
      facts.rows === 0
        ? undefined
        : await readDerivedValues({ clickhouse, encoder }, { scope, slice, fields, folder, source, facts }, signal);
    return { source, derived, rows: facts.rows, groups: facts.groups };
  } catch (error) {
    await rm(join(folder, source), { force: true });
    throw error;
  }
}
