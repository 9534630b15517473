import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { type EncodeRequest, footerCompressions, type ParquetFooter } from '../../infra/duckdb/encode-sql.ts';
import type { Encoder, EncoderPool } from '../../infra/duckdb/encoder.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { runUntilAborted } from '../../infra/fairness/tenant-context.ts';
import { type ExportField, runParquetColumns } from '../../schemas/parquet/run-columns.ts';
import { chunkColumns, getColumnType, getSourceColumnName } from './chunk-columns.ts';
import { type ChunkFiles, type ChunkRequest, findChunk, readChunk, removeDerivedFiles } from './chunk-reader.ts';
import type { ChunkSource, ExportWorkerDeps, ParquetPart } from './export-deps.ts';
import { countMembers } from './members.ts';
import type { ExportFormat } from './record.ts';

const partFileName = 'part.parquet';
/** Limits of a row group: it ends at 120,000 rows or 32 MB. */
const maxGroupRows = 120_000;
const maxGroupBytes = 32 * 1024 * 1024;

/**
 * Encodes a chunk as one Parquet file with the rows in the same order. Compares the footer of the file with the number
 * of rows and the expected columns. Row groups have 120,000 rows or about 32 MB, whichever is less. Deletes the input
 * files, even after an error.
 *
 * @throws EXPORT_FILE_INVALID, PARQUET_ENCODER_FAILED, WORK_FILE_UNUSABLE, or the reason of `signal`; in this case no
 *   file is left.
 */
export async function encodeChunk(
  { encoder }: { readonly encoder: Encoder },
  files: ChunkFiles,
  { folder, format }: Pick<ChunkRequest, 'folder' | 'format'>,
  signal: AbortSignal,
): Promise<ParquetPart> {
  const path = join(folder, partFileName);
  try {
    const footer = await encoder.encode(buildEncodeRequest(files, folder, format), signal);
    const reason = findMismatch(footer, files, format);
    if (reason !== undefined) throw runlakeError('EXPORT_FILE_INVALID', { reason });
    return { path, rows: footer.rows, bytes: (await stat(path)).size };
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    await discardChunk(files, folder);
  }
}

async function discardChunk({ source, derived }: ChunkFiles, folder: string): Promise<void> {
  await rm(join(folder, source), { force: true });
  await removeDerivedFiles(derived, folder);
}

function buildEncodeRequest(
  files: ChunkFiles,
  folder: string,
  { version, compression, fields }: ExportFormat,
): EncodeRequest {
  const { source, derived } = files;
  return {
    folder,
    source,
    target: partFileName,
    derived,
    columns: (fields as readonly ExportField[]).map((field) => ({
      name: field,
      form: getColumnType(field, version),
      from: chunkColumns[field].sql === undefined ? undefined : getSourceColumnName(field),
      derivedColumn: chunkColumns[field].derived === undefined ? undefined : getSourceColumnName(field),
    })),
    compression,
    rowGroupRows: Math.min(
      chooseGroupRows(files.groups.map(({ rows, uncompressedBytes: bytes }) => ({ rows, bytes }))),
      derived ? chooseGroupRows(derived.files) : maxGroupRows,
    ),
  };
}

/**
 * Returns the number of rows per row group for consecutive rows of these sizes. By default a group of rows of average size has 32 MB. If large runs are
 * adjacent, such a group could be far larger; the number of rows is then reduced so that no group is much larger than
 * 32 MB.
 */
function chooseGroupRows(source: readonly { readonly rows: number; readonly bytes: number }[]): number {
  let maxRows = maxGroupRows;
  let first = 0;
  let rows = 0;
  let bytes = 0;
  let totalRows = 0;
  let totalBytes = 0;
  for (const group of source) {
    totalRows += group.rows;
    totalBytes += group.bytes;
    rows += group.rows;
    bytes += group.bytes;
    for (; bytes >= maxGroupBytes; first++) {
      maxRows = Math.min(maxRows, rows);
      rows -= source[first]?.rows ?? 0;
      bytes -= source[first]?.bytes ?? 0;
    }
  }
  return Math.max(1, Math.min(maxRows, Math.floor((maxGroupBytes * totalRows) / Math.max(totalBytes, 1))));
}

/** Describes how the footer of a file differs from the expected footer. Returns undefined if there is no difference. */
function findMismatch(footer: ParquetFooter, files: ChunkFiles, format: ExportFormat): string | undefined {
  if (footer.rows !== files.rows) return `it has ${footer.rows} rows, and ${files.rows} were read`;
  const types = new Map(runParquetColumns.map(({ name, type }) => [name as string, type[format.version]]));
  const expected = format.fields.map((field) => `${field} ${types.get(field)}`).join(', ');
  const found = footer.columns.map(({ name, type }) => `${name} ${type}`).join(', ');
  if (found !== expected) return `its columns are ${found}, not ${expected}`;
  const compression = footerCompressions[format.compression];
  if (footer.compressions.some((used) => used !== compression)) return `its compression is ${footer.compressions}`;
  return undefined;
}

/**
 * Total size of the JSON columns at which an export starts a new file. The work folder needs a few times this size for
 * each export run.
 */
const maxChunkBytes = 256 * 1024 ** 2;
/** Number of stored rows after which an export starts a new file: twice those of a full file, because runs are patched. */
const maxChunkStoredRows = 480_000;
/**
 * Timeout of queries that have none of their own. A filter on texts reads those of all runs between the ends of a chunk, which
 * may be tens of gigabytes, and queries of other organisations may come first.
 */
const queryTimeoutMs = 900_000;

/**
 * Creates chunk sources, which read members from ClickHouse and encode them as files. Each attempt at an export run
 * borrows one encoder.
 */
export function createChunkSources(
  deps: { readonly clickhouse: ClickHouse; readonly encoders: EncoderPool },
  { exportSliceRows: rows }: ExportWorkerDeps['limits'],
): ExportWorkerDeps['openSource'] {
  const { encoders } = deps;
  const clickhouse: ClickHouse = {
    ...deps.clickhouse,
    query: (query) => deps.clickhouse.query({ timeoutMs: queryTimeoutMs, ...query }),
  };
  const limits = { rows, bytes: maxChunkBytes, storedRows: maxChunkStoredRows };
  return (scope, format): ChunkSource<unknown> => {
    const encoder = encoders.borrow();
    const source: ChunkSource<ChunkFiles> = {
      count: (signal) => countMembers(clickhouse, scope, signal),
      find: (after, signal) => findChunk(clickhouse, scope, after, limits, signal),
      read: (chunk, folder, signal) =>
        runUntilAborted(signal, () => readChunk({ clickhouse, encoder }, { scope, chunk, format, folder }, signal)),
      encode: (files, folder, signal) => encodeChunk({ encoder }, files, { folder, format }, signal),
      close: () => encoders.release(encoder),
    };
    return source as ChunkSource<unknown>;
  };
}
