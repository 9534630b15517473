import type { ClickHouseSettings } from '@clickhouse/client';
import type { CommandProfile } from './settings.ts';

/**
 * The port of the warehouse. One adapter: ClickHouse over HTTP ({@link openWarehouse} in `client.ts`).
 *
 * How values come back from {@link Warehouse.query}: 64-bit integers as numbers (whatever Runlake stores fits; a query that
 * reads more, such as a hash, casts it with `toString`), times as `2026-01-02T03:04:05.123456Z`, UUIDs in lower case,
 * named tuples as objects, unnamed ones as arrays, bytes that are not UTF-8 only through {@link Warehouse.queryText}.
 * How parameters go in: as `{name:Type}` in the SQL; times as microseconds (`fromUnixTimestamp64Micro({t:Int64})`) or as
 * text without a `Z`. One parameter holds at most 128 KiB: longer lists of keys go in as {@link ExternalTable}.
 *
 * Every call throws only errors of the catalogue: WAREHOUSE_UNAVAILABLE (transient), ACCESS_DENIED_BY_STORE,
 * WAREHOUSE_QUERY_FAILED, and for inserts INSERT_DATA_REFUSED and SCHEMA_MISMATCH; or, where the caller's own signal
 * was aborted, the reason of that signal.
 */
export interface Warehouse {
  /** Rows of a query, as objects by column name. `sql` carries no FORMAT clause and no semicolon. */
  query<Row>(query: Query): Promise<Row[]>;
  /** The result in one of ClickHouse's formats, as it came. */
  queryText(query: Query & { readonly format: string }): Promise<Buffer>;
  /**
   * The result as a file, written while it comes in, over what is there. Memory does not grow with it. Where it fails, also late,
   * no file is left.
   * @throws also WORK_FILE_UNUSABLE.
   */
  queryToFile(query: FileQuery): Promise<{ readonly bytes: number }>;
  /** Resolves when the whole body is stored, in the table and in every view on it. */
  insertBody(insert: InsertBody): Promise<void>;
  /** A statement without a result: DDL, `INSERT … SELECT`. */
  command(command: Command): Promise<void>;
  /** Resolves when ClickHouse answers a query with our user and database. */
  ping(timeoutMs?: number): Promise<void>;
  /** Such as `26.7.2.1`. */
  version(): Promise<string>;
  /** Ends all connections, also those in use: let calls finish first. */
  close(): Promise<void>;
}

export interface Query {
  /** What the query is for, in kebab case; `log_comment` in `system.query_log`. */
  readonly name: string;
  readonly sql: string;
  readonly params?: Readonly<Record<string, QueryParameter>>;
  /** A table that exists for this query only, for lists of keys of any length: `… IN keys`. */
  readonly external?: ExternalTable;
  /** Beyond the profile's. */
  readonly settings?: ClickHouseSettings;
  /** Default: that of the warehouse. ClickHouse stops the query by itself at this time. */
  readonly timeoutMs?: number;
  /** Aborting it ends the query on the server too. */
  readonly signal?: AbortSignal;
}

export interface FileQuery extends Query {
  /** Those with an end of their own: without it a result that was cut off by a server before 25.11 could not be told. */
  readonly format: 'Parquet';
  readonly path: string;
}

export interface Command extends Query {
  /** The settings that go with it. Default `write`. */
  readonly profile?: CommandProfile;
}

export type QueryParameter = string | number | boolean | null | readonly (string | number | null)[];

export interface ExternalTable {
  readonly name: string;
  /** Columns with types, such as `tenant_id UUID, trace_id UUID`. */
  readonly structure: string;
  /** Tab-separated rows; values must need no escaping (UUIDs, numbers). */
  readonly rows: readonly (readonly (string | number)[])[];
}

export interface InsertBody {
  /** Where the rows come from, for the log and for faults; the sink gives the topic. */
  readonly name: string;
  readonly table: string;
  /** Columns of the body. Always named: without a list a column that the schema lacks fails everything. */
  readonly columns: readonly string[];
  readonly format: 'Avro' | 'JSONEachRow' | 'RowBinary';
  /** Sent with its length: a body that was cut off on the way is refused, never stored in part. */
  readonly body: Uint8Array;
  /** Two inserts of one token store once; the same body must go with it. */
  readonly token: string;
  readonly settings?: ClickHouseSettings;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}
