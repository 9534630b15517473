import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { EncodeRequest, ParquetFacts } from '../../../infra/duckdb/encode-request.ts';
import { compressionInFooter } from '../../../infra/duckdb/encode-sql.ts';
import type { Encoder } from '../../../infra/duckdb/encoder.ts';
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { ExportField } from '../../../schemas/parquet/run-columns.ts';
import { runParquetColumns } from '../../../schemas/parquet/run-columns.ts';
import type { ExportFormat } from '../export-scope.ts';
import type { SliceFiles, SliceRequest } from './read-slice.ts';
import { formOf, sliceColumns, sourceName } from './slice-columns.ts';

/** A file that is ready to go to the bucket. */
export interface Part {
  /** `<folder>/part.parquet`; the caller's to remove. */
  readonly path: string;
  /** At least 1. */
  readonly rows: number;
  /** Of the file. */
  readonly bytes: number;
}

const target = 'part.parquet';
/** Source: SPEC of the format of exports: 120,000 rows or 32 MB a row group. */
const maxGroupRows = 120_000;
const maxGroupBytes = 32 * 1024 * 1024;

/**
 * Makes the Parquet file of a slice that was read, in its order, and holds its footer against what was read and against the
 * table of columns. Row groups have 120,000 rows or about 32 MB, whichever is less. What was read is removed from the folder, also where this fails.
 *
 * @returns undefined where no run was left in the slice: then there is no file.
 * @throws EXPORT_FILE_INVALID, PARQUET_ENCODER_FAILED, WORK_FILE_UNUSABLE, or the reason of `signal`; then it leaves no file.
 */
export async function encodeSlice(
  { encoder }: { readonly encoder: Encoder },
  files: SliceFiles,
  { folder, format }: Pick<SliceRequest, 'folder' | 'format'>,
  signal: AbortSignal,
): Promise<Part | undefined> {
  const path = join(folder, target);
  try {
    if (files.rows === 0) return undefined;
    const facts = await encoder.encode(requestOf(files, folder, format), signal);
    const reason = mismatch(facts, files, format);
    if (reason !== undefined) throw fault('EXPORT_FILE_INVALID', { reason });
    return { path, rows: facts.rows, bytes: (await stat(path)).size };
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await discardSlice(files, folder);
  }
}

async function discardSlice({ source, beside }: SliceFiles, folder: string): Promise<void> {
  await rm(join(folder, source), { force: true });
  if (beside !== undefined) await rm(join(folder, beside.file), { force: true });
}

function requestOf(files: SliceFiles, folder: string, { version, compression, fields }: ExportFormat): EncodeRequest {
  const { source, beside } = files;
  return {
    folder,
    source,
    target,
    beside,
    columns: (fields as readonly ExportField[]).map((field) => ({
      name: field,
      form: formOf(field, version),
      from: sliceColumns[field].sql === undefined ? undefined : sourceName(field),
      beside: sliceColumns[field].beside === undefined ? undefined : sourceName(field),
    })),
    compression,
    rowGroupRows: groupRows(files.groups),
  };
}

/**
 * Rows of a group: as many as make 32 MB on the average of the slice. Where large runs lie close together that many could be
 * far more; then as many as make hardly more than that anywhere.
 */
function groupRows(source: ParquetFacts['groups']): number {
  let most = maxGroupRows;
  let first = 0;
  let rows = 0;
  let bytes = 0;
  let allRows = 0;
  let allBytes = 0;
  for (const group of source) {
    allRows += group.rows;
    allBytes += group.plainBytes;
    rows += group.rows;
    bytes += group.plainBytes;
    for (; bytes >= maxGroupBytes; first++) {
      most = Math.min(most, rows);
      rows -= source[first]?.rows ?? 0;
      bytes -= source[first]?.plainBytes ?? 0;
    }
  }
  return Math.max(1, Math.min(most, Math.floor((maxGroupBytes * allRows) / Math.max(allBytes, 1))));
}

/** In what a footer differs from what it has to say. */
function mismatch(facts: ParquetFacts, files: SliceFiles, format: ExportFormat): string | undefined {
  if (facts.rows !== files.rows) return `it has ${facts.rows} rows, and ${files.rows} were read`;
  const types = new Map(runParquetColumns.map(({ name, type }) => [name as string, type[format.version]]));
  const expected = format.fields.map((field) => `${field} ${types.get(field)}`).join(', ');
  const found = facts.columns.map(({ name, type }) => `${name} ${type}`).join(', ');
  if (found !== expected) return `its columns are ${found}, not ${expected}`;
  const compression = compressionInFooter[format.compression];
  if (facts.compressions.some((used) => used !== compression)) return `its compression is ${facts.compressions}`;
  return undefined;
}
