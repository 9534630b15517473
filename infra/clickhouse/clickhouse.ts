import type { ClickHouseSettings } from '@clickhouse/client';
import type { Layout } from './layout.ts';
import type { CommandProfile } from './settings.ts';

/**
 * The ClickHouse client. One adapter: ClickHouse over HTTP ({@link openClickHouse} in `client.ts`).
 *
 * {@link ClickHouse.query} returns 64-bit integers as numbers (all values that Runlake stores fit; a query that reads
 * larger ones, such as a hash, casts them with `toString`), times as `2026-01-02T03:04:05.123456Z`, UUIDs in lower
 * case, named tuples as objects and unnamed tuples as arrays. Bytes that are not UTF-8 are available only through
 * {@link ClickHouse.queryText}. SQL refers to parameters as `{name:Type}`; times are passed as microseconds
 * (`fromUnixTimestamp64Micro({t:Int64})`) or as text without a `Z`. A parameter has at most 128 KiB: pass longer lists
 * of keys as {@link ExternalTable}.
 *
 * Every call throws only errors of the catalogue: CLICKHOUSE_UNAVAILABLE (transient), ACCESS_DENIED_BY_STORE,
 * CLICKHOUSE_QUERY_FAILED, and for inserts INSERT_DATA_REFUSED and SCHEMA_MISMATCH; or the reason of the caller's
 * signal, if that was aborted.
 */
export interface ClickHouse {
  /** Name of the configured cluster, if any. */
  readonly cluster: string | undefined;
  /** One client for each configured server; statements of this client go to any of them. */
  readonly servers: readonly ClickHouse[];
  /** How the tables are stored. @throws also PART_UNUSABLE if the servers do not match the configured cluster. */
  layout(): Promise<Layout>;
  /** Returns rows as objects by column name. `sql` must not have a FORMAT clause or a semicolon. */
  query<Row>(query: Query): Promise<Row[]>;
  /** Returns the unparsed result in one of ClickHouse's formats. */
  queryText(query: Query & { readonly format: string }): Promise<Buffer>;
  /**
   * Streams the result into a file, which it overwrites. Memory use does not depend on the size of the result. After an
   * error the file does not exist.
   * @throws also WORK_FILE_UNUSABLE.
   */
  queryToFile(query: FileQuery): Promise<{ readonly bytes: number }>;
  /** Resolves when the whole body is stored, in the table and in all its materialized views. */
  insertBody(insert: InsertBody): Promise<void>;
  /** Runs a statement without a result: DDL, `INSERT … SELECT`. */
  command(command: Command): Promise<void>;
  /** Resolves when ClickHouse has executed a query with the configured user and database. */
  ping(timeoutMs?: number): Promise<void>;
  /** Server version, for example `26.7.2.1`. */
  version(): Promise<string>;
  /** Closes all connections, including those in use. Wait for running calls first. */
  close(): Promise<void>;
}

export interface Query {
  /** Purpose of the query, in kebab case; `log_comment` in `system.query_log`. */
  readonly name: string;
  readonly sql: string;
  readonly params?: Readonly<Record<string, QueryParameter>>;
  /** A temporary table for this query, for lists of keys of any length: `… IN keys`. */
  readonly external?: ExternalTable;
  /** Settings in addition to those of the profile. */
  readonly settings?: ClickHouseSettings;
  /** Default: the timeout of the client. ClickHouse stops the query after this time. */
  readonly timeoutMs?: number;
  /** Aborting it also cancels the query on the server. */
  readonly signal?: AbortSignal;
}

export interface FileQuery extends Query {
  /** Only formats with an end marker: without one, a truncated result of a server before 25.11 could not be detected. */
  readonly format: 'Parquet';
  readonly path: string;
}

export interface Command extends Query {
  /** Settings profile. Default `write`. */
  readonly profile?: CommandProfile;
}

export type QueryParameter = string | number | boolean | null | readonly (string | number | null)[];

export interface ExternalTable {
  readonly name: string;
  /** Columns with types, for example `tenant_id UUID, trace_id UUID`. */
  readonly structure: string;
  /** Tab-separated rows; values must need no escaping (UUIDs, numbers). */
  readonly rows: readonly (readonly (string | number)[])[];
}

export interface InsertBody {
  /** Origin of the rows, for logs and errors; the sink passes the topic. */
  readonly name: string;
  readonly table: string;
  /**
   * Columns of the body. The list is required: without it, the insert fails if the table has a column that the body lacks.
   */
  readonly columns: readonly string[];
  readonly format: 'Avro' | 'JSONEachRow' | 'RowBinary';
  /** Sent with Content-Length, so that ClickHouse rejects a truncated body instead of storing a part of it. */
  readonly body: Uint8Array;
  /** Marks the query on the server, so that `endInserts` finds it. */
  readonly id: string;
  readonly settings?: ClickHouseSettings;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}
