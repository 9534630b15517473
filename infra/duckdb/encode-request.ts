/** Conversion of the values of a source column. */
export type ColumnConversion =
  /** Unchanged, as VARCHAR. */
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
  /** Column of the source file. Without it and without `derived`, all values are null. */
  readonly from?: string | undefined;
  /** Column of the side file; its non-null values override those of the source. */
  readonly derived?: string | undefined;
}

export type ParquetCompression = 'none' | 'gzip' | 'snappy' | 'zstandard';

export interface EncodeRequest {
  /** Folder of all files, including temporary ones. The encoder cannot access anything outside it. */
  readonly folder: string;
  /** Names of files in `folder`. The source is Parquet; its row order is preserved. */
  readonly source: string;
  readonly target: string;
  /** A side file with one line for each row of the source. */
  readonly derived?: DerivedFile | undefined;
  readonly columns: readonly EncodedColumn[];
  readonly compression: ParquetCompression;
  /** At least 1. A row group may be larger by up to 2,047 rows. */
  readonly rowGroupRows: number;
}

/** CSV as in RFC 4180, with `\n` line endings; an empty field is null. Lines must not be empty. */
export interface DerivedFile {
  readonly file: string;
  readonly columns: readonly string[];
  readonly maxLineBytes: number;
}

/** Contents of the footer of a Parquet file. */
export interface ParquetFooter {
  readonly rows: number;
  /** Types are DuckDB type names. */
  readonly columns: readonly { readonly name: string; readonly type: string }[];
  readonly groups: readonly {
    readonly rows: number;
    /** Size of all columns, before and after compression. */
    readonly plainBytes: number;
    readonly bytes: number;
  }[];
  /** Parquet names: `ZSTD`, `UNCOMPRESSED`, … */
  readonly compressions: readonly string[];
  /** Number of nulls by column, if the footer contains it. */
  readonly nulls: Readonly<Record<string, number>>;
}

/** Writes some columns of a Parquet file as CSV, in row order, for lookups of related data. */
export interface ListRequest {
  readonly folder: string;
  readonly source: string;
  readonly target: string;
  /** Written as text; null is an empty field. */
  readonly columns: readonly string[];
}

/** Message of the parent to the encoder process. */
export type ChildRequest = { readonly number: number } & Work;

export type Work =
  | { readonly kind: 'encode'; readonly request: EncodeRequest }
  | { readonly kind: 'list'; readonly request: ListRequest }
  | { readonly kind: 'inspect'; readonly request: { readonly folder: string; readonly source: string } };

/** Response of the encoder process. Number 0, without other fields, means that the child has started. */
export interface ChildResponse {
  readonly number: number;
  readonly footer?: ParquetFooter | undefined;
  /** DuckDB's error message. */
  readonly reason?: string;
}
