import type { ClickHouseSettings } from '@clickhouse/client';
import type { CommandProfile, Layout } from './settings.ts';

/**
 * The ClickHouse client. It has one adapter: ClickHouse over HTTP ({@link openClickHouse} in `client.ts`).
 *
 * {@link ClickHouse.query} returns 64-bit integers as numbers, times as `2026-01-02T03:04:05.123456Z`, UUIDs in lower
 * case, named tuples as objects and unnamed tuples as arrays. All integers that Runlake stores fit into a number; a
 * query that reads larger integers, such as a hash, casts them with `toString`. Bytes that are not UTF-8 are available
 * only through {@link ClickHouse.queryText}. SQL refers to parameters as `{name:Type}`. Times are passed as
 * microseconds (`fromUnixTimestamp64Micro({t:Int64})`) or as text without a `Z`. Texts and arrays can have any
 * length; long lists of keys are faster as an {@link ExternalTable}.
 *
 * Every call throws only errors of the catalogue: CLICKHOUSE_UNAVAILABLE (transient), ACCESS_DENIED_BY_STORE,
 * CLICKHOUSE_QUERY_FAILED, and for inserts INSERT_DATA_REFUSED and SCHEMA_MISMATCH. If the caller's signal was aborted,
 * the call throws the reason of the signal.
 */
export interface ClickHouse {
  /** Name of the cluster, if one is configured. */
  readonly cluster: string | undefined;
  /**
   * One client for each configured server. Statements that are sent through this client can go to any of the servers.
   */
  readonly servers: readonly ClickHouse[];
  /**
   * Returns how the tables are stored.
   *
   * @throws also PART_UNUSABLE if the servers do not match the configured cluster.
   */
  layout(): Promise<Layout>;
  /** Returns rows as objects by column name. `sql` must not have a FORMAT clause or a semicolon. */
  query<Row>(query: Query): Promise<Row[]>;
  /** Returns the unparsed result in one of ClickHouse's formats. */
  queryText(query: Query & { readonly format: string }): Promise<Buffer>;
  /**
   * Streams the result to a file and overwrites the file if it exists. Memory use does not depend on the size of the
   * result. After an error, the file does not exist.
   *
   * @throws also WORK_FILE_UNUSABLE.
   */
  queryToFile(query: FileQuery): Promise<{ readonly bytes: number }>;
  /** Inserts a body. Resolves when the whole body is stored in the table and in all its materialized views. */
  insertBody(insert: InsertBody): Promise<void>;
  /** Runs a statement that has no result, such as DDL or `INSERT … SELECT`. */
  command(command: Command): Promise<void>;
  /**
   * Checks the connection. Resolves when ClickHouse has executed a query as the configured user in the configured
   * database.
   */
  ping(timeoutMs?: number): Promise<void>;
  /** Returns the server version, for example `26.7.2.1`. */
  version(): Promise<string>;
  /** Closes all connections, including those in use. Callers should wait for running calls first. */
  close(): Promise<void>;
}

export interface Query {
  /** Purpose of the query in kebab case. Stored as `log_comment` in `system.query_log`. */
  readonly name: string;
  readonly sql: string;
  readonly params?: Readonly<Record<string, QueryParameter>>;
  /**
   * Tables that the query names as `{stored_table:Identifier}`. In a cluster, the query runs on the local tables of each
   * shard at the same time, and the result has the rows of one shard after the other: the caller merges orders, limits and
   * groups. This takes two thirds of the CPU time of the query on Distributed tables, which one more server plans. All rows
   * of a trace are on one shard, and all feedback and attachments of a run.
   */
  readonly shardTables?: readonly string[];
  /**
   * Workspace whose rows the query reads, if its `shardTables` have `SHARD BY (tenant_id)`. In a cluster, the query runs only
   * on the shard that has these rows, so its result needs no merging.
   */
  readonly shardOf?: string;
  /** A temporary table for this query. It can hold a list of keys of any length: `… IN keys`. */
  readonly externalTable?: ExternalTable | undefined;
  /** Settings that are added to those of the profile. */
  readonly settings?: ClickHouseSettings;
  /** Timeout of the query. ClickHouse stops the query when it expires. Default: the timeout of the client. */
  readonly timeoutMs?: number;
  /** Aborts the query, and also cancels it on the server. */
  readonly signal?: AbortSignal | undefined;
}

export interface FileQuery extends Omit<Query, 'shardTables' | 'shardOf'> {
  /**
   * Format of the file. Only formats with an end marker are allowed; without an end marker, a truncated result of a
   * server before 25.11 could not be detected.
   */
  readonly format: 'Parquet';
  readonly path: string;
}

export interface Command extends Omit<Query, 'shardTables' | 'shardOf'> {
  /** Settings profile. Default: `write`. */
  readonly profile?: CommandProfile;
}

export type QueryParameter = string | number | bigint | boolean | null | readonly (string | number | bigint | null)[];

export interface ExternalTable {
  readonly name: string;
  /** Columns with types, for example `tenant_id UUID, trace_id UUID`. */
  readonly structure: string;
  /** Rows, sent as tab-separated text. The values must not need escaping (UUIDs, numbers). */
  readonly rows: readonly (readonly (string | number)[])[];
}

export interface InsertBody {
  /** Origin of the rows, for logs and errors. The sink passes the topic. */
  readonly name: string;
  readonly table: string;
  /**
   * Columns of the body. The list is required, because otherwise the insert fails if the table has a column that is
   * missing in the body.
   */
  readonly columns: readonly string[];
  readonly format: 'Avro' | 'JSONEachRow' | 'RowBinary';
  /**
   * Body of the insert. Sent with Content-Length, so that ClickHouse rejects a truncated body instead of storing a part
   * of it.
   */
  readonly body: Uint8Array;
  readonly settings?: ClickHouseSettings;
  readonly timeoutMs?: number;
}
