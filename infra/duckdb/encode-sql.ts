import { join } from 'node:path';
import type {
  BesideFile,
  ColumnForm,
  EncodedColumn,
  EncodeRequest,
  ListRequest,
  ParquetCompression,
} from './encode-request.ts';

const text = (value: string) => `'${value.replaceAll("'", "''")}'`;
const name = (value: string) => `"${value.replaceAll('"', '""')}"`;

/**
 * JSON text in which every escape of half a surrogate pair is U+FFFD's: parsers refuse the others. First, doubled backslashes
 * are written in another way, so that each one that is left begins an escape; then pairs are set aside behind a sign that JSON
 * text cannot hold; what still looks like a surrogate is half of one.
 */
const mended = (json: string) => {
  const single = `replace(${json}, '\\\\', '\\u005c')`;
  const aside = `regexp_replace(${single}, '\\\\u([dD][89abAB][0-9a-fA-F]{2})\\\\u([dD][c-fC-F][0-9a-fA-F]{2})', chr(1) || '\\1' || chr(1) || '\\2', 'g')`;
  const halves = `regexp_replace(${aside}, '\\\\u[dD][89a-fA-F][0-9a-fA-F]{2}', '\\\\ufffd', 'g')`;
  return `CASE WHEN regexp_matches(${json}, '\\\\u[dD][89a-fA-F]') THEN replace(${halves}, chr(1), '\\u') ELSE ${json} END`;
};

/** What cannot be decoded at all, which valid JSON never is, stays as it came rather than failing or getting lost. */
const forms: Readonly<Record<ColumnForm, (value: string) => string>> = {
  text: (value) => `CAST(${value} AS VARCHAR)`,
  integer: (value) => `CAST(${value} AS BIGINT)`,
  boolean: (value) => `CAST(${value} AS BOOLEAN)`,
  time: (value) => `make_timestamp(CAST(${value} AS BIGINT))`,
  'zoned-time': (value) => `CAST(make_timestamp(CAST(${value} AS BIGINT)) AS TIMESTAMP WITH TIME ZONE)`,
  'json-text': (value) => `coalesce(TRY(json_extract_string(${mended(value)}, '$')), ${value})`,
  'json-list': (value) =>
    `CASE WHEN ${value} IS NULL THEN NULL ELSE coalesce(TRY(from_json(${mended(value)}, '["VARCHAR"]')), [${value}]) END`,
};

/** ZSTD of level 1: three quarters of the time for a few percent more bytes. */
const compressionSql: Readonly<Record<ParquetCompression, string>> = {
  none: 'uncompressed',
  gzip: 'gzip',
  snappy: 'snappy',
  zstandard: 'zstd, COMPRESSION_LEVEL 1',
};

/** As {@link ParquetFacts.compressions} names them. */
export const compressionInFooter: Readonly<Record<ParquetCompression, string>> = {
  none: 'UNCOMPRESSED',
  gzip: 'GZIP',
  snappy: 'SNAPPY',
  zstandard: 'ZSTD',
};

/** The statement that does an {@link EncodeRequest}. Columns that are not asked for are not read. */
export function encodeSql(request: EncodeRequest): string {
  const { folder, source, target, beside, columns, compression, rowGroupRows } = request;
  const values = columns.map((column) => `${forms[column.form](sourceOf(column, beside))} AS ${name(column.name)}`);
  return `COPY (SELECT ${values.join(', ')} FROM ${parquet(join(folder, source))} AS s${besideSql(folder, beside)})
    TO ${text(join(folder, target))} (FORMAT parquet, COMPRESSION ${compressionSql[compression]}, ROW_GROUP_SIZE ${rowGroupRows}, USE_TMP_FILE false)`;
}

function sourceOf({ form, from, beside }: EncodedColumn, file: BesideFile | undefined): string {
  const values = [
    ...(beside !== undefined && file?.columns.includes(beside) ? [`b.${name(beside)}`] : []),
    ...(from === undefined ? [] : [`s.${name(from)}`]),
  ];
  if (values.length === 0) return 'NULL';
  if (values.length === 1) return values.join();
  // The file beside holds text only.
  return `coalesce(${form === 'integer' ? values.map(forms.integer).join(', ') : values.join(', ')})`;
}

export function listSql({ folder, source, target, columns }: ListRequest): string {
  return `COPY (SELECT ${columns.map(name).join(', ')} FROM ${parquet(join(folder, source))})
    TO ${text(join(folder, target))} (FORMAT csv, HEADER false)`;
}

/** Both sides are read side by side and row by row: nothing is sorted, hashed or held. */
function besideSql(folder: string, beside: BesideFile | undefined): string {
  if (beside === undefined) return '';
  const columns = beside.columns.map((column) => `${text(column)}: 'VARCHAR'`).join(', ');
  const lineBytes = beside.longestLineBytes + 2;
  return ` POSITIONAL JOIN read_csv(${text(join(folder, beside.file))}, columns = {${columns}}, header = false, auto_detect = false,
    delim = ',', quote = '"', escape = '"', new_line = '\\n', nullstr = '', allow_quoted_nulls = false, parallel = false,
    max_line_size = ${lineBytes}, buffer_size = ${Math.max(4 * 1024 * 1024, 2 * lineBytes)}) AS b`;
}

const parquet = (path: string) => `read_parquet(${text(path)})`;

/** Three questions to a footer; see {@link ParquetFacts}. */
export function footerSql(path: string) {
  const metadata = `parquet_metadata(${text(path)})`;
  return {
    columns: `DESCRIBE SELECT * FROM ${parquet(path)}`,
    groups: `SELECT row_group_num_rows AS rows, sum(total_uncompressed_size) AS plain, sum(total_compressed_size) AS bytes
      FROM ${metadata} GROUP BY row_group_id, row_group_num_rows ORDER BY row_group_id`,
    chunks: `SELECT path_in_schema AS path, list(DISTINCT compression) AS compressions, sum(stats_null_count) AS nulls
      FROM ${metadata} GROUP BY path_in_schema`,
  };
}
