/** What a value of a source column becomes. */
export type ColumnForm =
  /** As it is: VARCHAR. */
  | 'text'
  | 'integer'
  | 'boolean'
  /** Microseconds since 1970 → TIMESTAMP, which is UTC by agreement. */
  | 'time'
  /** Microseconds since 1970 → TIMESTAMP WITH TIME ZONE. */
  | 'zoned-time'
  /** A JSON string → the text that it stands for; half of a surrogate pair becomes U+FFFD. */
  | 'json-text'
  /** A JSON array → VARCHAR[]; elements that are no strings become their JSON, nulls stay. */
  | 'json-list';

export interface EncodedColumn {
  readonly name: string;
  readonly form: ColumnForm;
  /** Column of the source with the values; without one, and without `beside`, all are null. */
  readonly from?: string | undefined;
  /** Column of the file beside it: what is not null there takes the place of the source's value. */
  readonly beside?: string | undefined;
}

export type ParquetCompression = 'none' | 'gzip' | 'snappy' | 'zstandard';

export interface EncodeRequest {
  /** Of the files below and of temporary ones. The encoder reaches nothing outside it. */
  readonly folder: string;
  /** Names of files in `folder`. The source is Parquet; its order of rows is kept. */
  readonly source: string;
  readonly target: string;
  /** A file of lines beside the source, one for each of its rows. */
  readonly beside?: BesideFile | undefined;
  readonly columns: readonly EncodedColumn[];
  readonly compression: ParquetCompression;
  /** At least 1. Groups may be larger by less than 2,048 rows. */
  readonly rowGroupRows: number;
}

/** CSV as RFC 4180 has it, with `\n` at the end of each line; nothing between two commas is null. No line may be empty. */
export interface BesideFile {
  readonly file: string;
  readonly columns: readonly string[];
  readonly longestLineBytes: number;
}

/** What the footer of a Parquet file says. */
export interface ParquetFacts {
  readonly rows: number;
  /** Types in DuckDB's words. */
  readonly columns: readonly { readonly name: string; readonly type: string }[];
  readonly groups: readonly {
    readonly rows: number;
    /** Of all columns, before and after compression. */
    readonly plainBytes: number;
    readonly bytes: number;
  }[];
  /** As Parquet calls them: `ZSTD`, `UNCOMPRESSED`, … */
  readonly compressions: readonly string[];
  /** Nulls by column, where the footer counts them. */
  readonly nulls: Readonly<Record<string, number>>;
}

/** Some columns of a file as CSV, in the order of its rows, for who has to look further things up. */
export interface ListRequest {
  readonly folder: string;
  readonly source: string;
  readonly target: string;
  /** All text; null is nothing between two commas. */
  readonly columns: readonly string[];
}
