import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import type { BesideFile, ParquetFacts } from '../../../infra/duckdb/encode-request.ts';
import type { Encoder } from '../../../infra/duckdb/encoder.ts';
import type { ExportField } from '../../../schemas/parquet/run-columns.ts';
import type { ExportFormat, ExportScope, ExportSlice } from '../export-scope.ts';
import { blockRows } from './block-rows.ts';
import { isMember, memberOrder, placeOfMembers } from './members.ts';
import { readBeside } from './read-beside.ts';
import { selectOf } from './slice-columns.ts';

export interface SlicePorts {
  readonly warehouse: Warehouse;
  readonly encoder: Encoder;
}

export interface SliceRequest {
  readonly scope: ExportScope;
  readonly slice: ExportSlice;
  readonly format: ExportFormat;
  /** Absolute, there, and of this slice alone: a part of an earlier one in it would be written over. */
  readonly folder: string;
}

/** A slice on its way, as files in its folder. */
export interface SliceFiles {
  readonly source: string;
  readonly beside: BesideFile | undefined;
  readonly rows: number;
  /** Row groups of the source. */
  readonly groups: ParquetFacts['groups'];
}

const source = 'slice.parquet';
/** A slice may be gigabytes. */
const timeoutMs = 3_600_000;
/** DuckDB holds 2,048 rows at once or a group of its source, whichever is less. */
const sourceGroupBytes = 8 * 1024 * 1024;
const maxSourceGroupRows = 16_384;
/** What a row has beside its JSON, about. */
const otherRowBytes = 600;

/**
 * Reads a slice, with the values of this moment, into `<folder>/slice.parquet`: the runs behind `slice.after` up to
 * `slice.last` that still belong to the scope, in order; beside it what the rows do not hold, where fields want it.
 *
 * @returns what the file's own footer says of it.
 * @throws what the warehouse and the encoder throw, WORK_FILE_UNUSABLE, or the reason of `signal`; then it leaves no file.
 */
export async function readSlice(
  { warehouse, encoder }: SlicePorts,
  { scope, slice, format, folder }: SliceRequest,
  signal: AbortSignal,
): Promise<SliceFiles> {
  const fields = format.fields as readonly ExportField[];
  const { sql, params } = placeOfMembers(scope, slice);
  const rowBytes = otherRowBytes + slice.bytes / Math.max(slice.rows, 1);
  const groupRows = Math.min(maxSourceGroupRows, Math.max(1, Math.floor(sourceGroupBytes / rowBytes)));
  try {
    await warehouse.queryToFile({
      name: 'read-slice',
      sql: `SELECT ${selectOf(fields)} FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at) AND ${isMember}
        ORDER BY ${memberOrder}`,
      params,
      settings: {
        max_block_size: String(await blockRows(warehouse, { sql, params }, signal)),
        output_format_parquet_row_group_size: String(groupRows),
        output_format_parquet_row_group_size_bytes: String(sourceGroupBytes),
      },
      format: 'Parquet',
      path: join(folder, source),
      timeoutMs,
      signal,
    });
    const facts = await encoder.inspect({ folder, source }, signal);
    const beside =
      facts.rows === 0
        ? undefined
        : await readBeside({ warehouse, encoder }, { scope, slice, fields, folder, source, facts }, signal);
    return { source, beside, rows: facts.rows, groups: facts.groups };
  } catch (error) {
    await rm(join(folder, source), { force: true });
    throw error;
  }
}
