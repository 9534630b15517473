import { join } from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';

/** How the values of a source column are converted. */
export type ColumnConversion =
  /** The value is unchanged, as VARCHAR. */
  | 'text'
  | 'integer'
  | 'boolean'
  /** Microseconds since 1970 → TIMESTAMP, in UTC by convention. */
  | 'time'
  /** Microseconds since 1970 → TIMESTAMP WITH TIME ZONE. */
  | 'zoned-time'
  /** A JSON string → its decoded text; a lone surrogate becomes U+FFFD. */
  | 'json-text'
  /** A JSON array → VARCHAR[]; elements other than strings become JSON text, nulls stay null. */
  | 'json-list';

export interface EncodedColumn {
  readonly name: string;
  readonly form: ColumnConversion;
  /** Column of the source file. If neither this property nor `derivedColumn` is set, all values are null. */
  readonly from?: string | undefined;
  /** Column of the {@link DerivedFiles}. Its non-null values override the values of the source file. */
  readonly derivedColumn?: string | undefined;
}

export type ParquetCompression = 'none' | 'gzip' | 'snappy' | 'zstandard';

export interface EncodeRequest {
  /**
   * Folder that contains all files, including temporary files. The encoder cannot access anything outside this folder.
   */
  readonly folder: string;
  /** Names of files in `folder`. The source is a Parquet file; the order of its rows is preserved. */
  readonly source: string;
  readonly target: string;
  readonly derived?: DerivedFiles | undefined;
  readonly columns: readonly EncodedColumn[];
  readonly compression: ParquetCompression;
  /** Number of rows in a row group, at least 1. A row group may have up to 2,047 additional rows. */
  readonly rowGroupRows: number;
}

/**
 * CSV files as in RFC 4180, but with `\n` line endings. Together they have one line for each row of the source, in the same
 * order. An empty field is null. Lines must not be empty.
 */
export interface DerivedFiles {
  readonly files: readonly { readonly name: string; readonly rows: number; readonly bytes: number }[];
  readonly columns: readonly string[];
  readonly maxLineBytes: number;
  /** Number of rows that fit into memory with their lists, if this is less than DuckDB processes at once. */
  readonly rowsAtOnce: number;
}

/**
 * Maximum size of the JSON arrays that DuckDB converts to lists at once, which takes more than 20 times this size. DuckDB
 * holds 2,048 rows in memory, or one row group of the source, or one derived file, whichever is less.
 */
export const maxListBytes = 2 * 1024 * 1024;

/** Contents of the footer of a Parquet file. */
export interface ParquetFooter {
  readonly rows: number;
  /** Names and types of the columns. The types are DuckDB type names. */
  readonly columns: readonly { readonly name: string; readonly type: string }[];
  readonly groups: readonly {
    readonly rows: number;
    /** Size of all columns before and after compression. */
    readonly uncompressedBytes: number;
    readonly bytes: number;
  }[];
  /** Compressions by their Parquet names: `ZSTD`, `UNCOMPRESSED`, … */
  readonly compressions: readonly string[];
  /** Number of nulls in each column, if the footer contains it. */
  readonly nulls: Readonly<Record<string, number>>;
}

/** A request to write some columns of a Parquet file as CSV, in row order. The CSV is used to look up related data. */
export interface ListRequest extends Pick<EncodeRequest, 'folder' | 'source' | 'target'> {
  /** Columns to write. Values are written as text; null is written as an empty field. */
  readonly columns: readonly string[];
}

/** Message from the parent to the encoder process. */
export type ChildRequest = { readonly number: number } & Work;

export type Work =
  | { readonly kind: 'encode'; readonly request: EncodeRequest }
  | { readonly kind: 'list'; readonly request: ListRequest }
  | { readonly kind: 'inspect'; readonly request: { readonly folder: string; readonly source: string } };

/** Response of the encoder process. Number 0 without any other field means that the child has started. */
export interface ChildResponse {
  readonly number: number;
  readonly footer?: ParquetFooter | undefined;
  /** DuckDB's error message. */
  readonly reason?: string;
}

/** Returns an SQL string literal. */
export const quoteText = (value: string) => `'${value.replaceAll("'", "''")}'`;
const quoteName = (value: string) => `"${value.replaceAll('"', '""')}"`;

/**
 * Returns SQL that replaces escapes of lone surrogates in JSON text with U+FFFD, because parsers reject them. First,
 * double backslashes are rewritten, so that every remaining backslash starts an escape. Then surrogate pairs are masked
 * with a character that cannot occur in JSON text. The remaining surrogate escapes are lone surrogates.
 */
const replaceLoneSurrogates = (json: string) => {
  const escapedBackslashes = `replace(${json}, '\\\\', '\\u005c')`;
  const maskedPairs = `regexp_replace(${escapedBackslashes}, '\\\\u([dD][89abAB][0-9a-fA-F]{2})\\\\u([dD][c-fC-F][0-9a-fA-F]{2})', chr(1) || '\\1' || chr(1) || '\\2', 'g')`;
  const replaced = `regexp_replace(${maskedPairs}, '\\\\u[dD][89a-fA-F][0-9a-fA-F]{2}', '\\\\ufffd', 'g')`;
  return `CASE WHEN regexp_matches(${json}, '\\\\u[dD][89a-fA-F]') THEN replace(${replaced}, chr(1), '\\u') ELSE ${json} END`;
};

/**
 * SQL of each conversion. A value that is not valid JSON is kept unchanged, so that it neither causes the whole file to
 * fail nor is lost.
 */
const conversionSql: Readonly<Record<ColumnConversion, (value: string) => string>> = {
  text: (value) => `CAST(${value} AS VARCHAR)`,
  integer: (value) => `CAST(${value} AS BIGINT)`,
  boolean: (value) => `CAST(${value} AS BOOLEAN)`,
  time: (value) => `make_timestamp(CAST(${value} AS BIGINT))`,
  'zoned-time': (value) => `CAST(make_timestamp(CAST(${value} AS BIGINT)) AS TIMESTAMP WITH TIME ZONE)`,
  'json-text': (value) => `coalesce(TRY(json_extract_string(${replaceLoneSurrogates(value)}, '$')), ${value})`,
  'json-list': (value) =>
    `CASE WHEN ${value} IS NULL THEN NULL ELSE coalesce(TRY(from_json(${replaceLoneSurrogates(value)}, '["VARCHAR"]')), [${value}]) END`,
};

/**
 * The COPY option for each compression. ZSTD level 1 takes three quarters of the time of the default level, and its
 * output is only a few percent larger.
 */
const compressionSql: Readonly<Record<ParquetCompression, string>> = {
  none: 'uncompressed',
  gzip: 'gzip',
  snappy: 'snappy',
  zstandard: 'zstd, COMPRESSION_LEVEL 1',
};

/** The compression name in {@link ParquetFooter.compressions} for each compression. */
export const footerCompressions: Readonly<Record<ParquetCompression, string>> = {
  none: 'UNCOMPRESSED',
  gzip: 'GZIP',
  snappy: 'SNAPPY',
  zstandard: 'ZSTD',
};

/** Returns the SQL that executes an {@link EncodeRequest}. The SQL reads only the requested columns. */
export function buildEncodeSql(request: EncodeRequest): string {
  const { folder, source, target, derived, columns, compression, rowGroupRows } = request;
  const values = columns.map(
    (column) => `${conversionSql[column.form](buildSourceSql(column, derived))} AS ${quoteName(column.name)}`,
  );
  return `COPY (SELECT ${values.join(', ')} FROM ${readParquetSql(join(folder, source))} AS s${buildDerivedSql(folder, derived)})
    TO ${quoteText(join(folder, target))} (FORMAT parquet, COMPRESSION ${compressionSql[compression]}, ROW_GROUP_SIZE ${rowGroupRows}, USE_TMP_FILE false)`;
}

function buildSourceSql({ form, from, derivedColumn }: EncodedColumn, derived: DerivedFiles | undefined): string {
  const values = [
    ...(derivedColumn !== undefined && derived?.columns.includes(derivedColumn)
      ? [`b.${quoteName(derivedColumn)}`]
      : []),
    ...(from === undefined ? [] : [`s.${quoteName(from)}`]),
  ];
  if (values.length === 0) return 'NULL';
  if (values.length === 1) return values.join();
  // All derived columns are text.
  return `coalesce(${form === 'integer' ? values.map(conversionSql.integer).join(', ') : values.join(', ')})`;
}

export function buildListSql({ folder, source, target, columns }: ListRequest): string {
  return `COPY (SELECT ${columns.map(quoteName).join(', ')} FROM ${readParquetSql(join(folder, source))})
    TO ${quoteText(join(folder, target))} (FORMAT csv, HEADER false)`;
}

/**
 * Returns the SQL that joins the derived files with the source by row position. DuckDB streams all files without sorting,
 * hashing or buffering.
 */
function buildDerivedSql(folder: string, derived: DerivedFiles | undefined): string {
  if (derived === undefined) return '';
  const paths = derived.files.map(({ name }) => quoteText(join(folder, name))).join(', ');
  const columns = derived.columns.map((column) => `${quoteText(column)}: 'VARCHAR'`).join(', ');
  const lineBytes = derived.maxLineBytes + 2;
  return ` POSITIONAL JOIN read_csv([${paths}], columns = {${columns}}, header = false, auto_detect = false,
    delim = ',', quote = '"', escape = '"', new_line = '\\n', nullstr = '', allow_quoted_nulls = false, parallel = false,
    max_line_size = ${lineBytes}, buffer_size = ${Math.max(4 * 1024 * 1024, 2 * lineBytes)}) AS b`;
}

const readParquetSql = (path: string) => `read_parquet(${quoteText(path)})`;

/** Reads the footer of the Parquet file at `path`. @throws DuckDB's error if the file is not a Parquet file. */
export async function readFooter(connection: DuckDBConnection, path: string): Promise<ParquetFooter> {
  const metadata = `parquet_metadata(${quoteText(path)})`;
  const readRows = async (statement: string) => (await connection.runAndReadAll(statement)).getRowObjectsJson();
  const columns = await readRows(`DESCRIBE SELECT * FROM ${readParquetSql(path)}`);
  const groups = await readRows(
    `SELECT row_group_num_rows AS rows, sum(total_uncompressed_size) AS plain, sum(total_compressed_size) AS bytes
      FROM ${metadata} GROUP BY row_group_id, row_group_num_rows ORDER BY row_group_id`,
  );
  const chunks = await readRows(
    `SELECT path_in_schema AS path, list(DISTINCT compression) AS compressions, sum(stats_null_count) AS nulls
      FROM ${metadata} GROUP BY path_in_schema`,
  );
  return {
    rows: groups.reduce((rows, group) => rows + Number(group.rows), 0),
    columns: columns.map((column) => ({ name: String(column.column_name), type: String(column.column_type) })),
    groups: groups.map(({ rows, plain, bytes }) => ({
      rows: Number(rows),
      uncompressedBytes: Number(plain),
      bytes: Number(bytes),
    })),
    compressions: [...new Set(chunks.flatMap(({ compressions }) => compressions as string[]))].sort(),
    nulls: Object.fromEntries(
      chunks.filter(({ nulls }) => nulls !== null).map(({ path: column, nulls }) => [String(column), Number(nulls)]),
    ),
  };
}
