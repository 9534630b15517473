import type { ClickHouseSettings } from '@clickhouse/client';

/**
 * The ClickHouse settings that Runlake depends on. Every statement is sent with one complete profile, because the
 * defaults of servers differ between releases and installations.
 */

/** Format of values in results and parameters. */
const formatSettings = {
  session_timezone: 'UTC',
  date_time_input_format: 'best_effort',
  // 2026-01-02T03:04:05.123456Z
  date_time_output_format: 'iso',
  // Integers above 2^53 lose digits. Queries that read such values (hashes) must therefore cast them to text.
  output_format_json_quote_64bit_integers: 0,
  output_format_json_quote_64bit_floats: 0,
  output_format_json_quote_decimals: 0,
  output_format_json_quote_denormals: 0,
  output_format_json_escape_forward_slashes: 0,
  output_format_json_named_tuples_as_objects: 1,
  output_format_json_array_of_rows: 1,
  // The status of the response then applies to the whole result: no error can follow a 200.
  wait_end_of_query: 1,
  // Bytes of a result that the server keeps in memory, more than any result has. It writes the rest to a temporary file and,
  // if its disk is full, responds with 200 and without that rest.
  http_response_buffer_size: '1073741824',
} as const satisfies ClickHouseSettings;

/**
 * Makes a query return either the complete result or an error. Without these settings, ClickHouse responds with 200 and
 * a partial result when it reaches a limit.
 */
const completeResultSettings = {
  timeout_overflow_mode: 'throw',
  read_overflow_mode: 'throw',
  result_overflow_mode: 'throw',
  group_by_overflow_mode: 'throw',
  sort_overflow_mode: 'throw',
  distinct_overflow_mode: 'throw',
  set_overflow_mode: 'throw',
  join_overflow_mode: 'throw',
  transfer_overflow_mode: 'throw',
} as const satisfies ClickHouseSettings;

const readSettings = {
  ...formatSettings,
  ...completeResultSettings,
  // A cached result may be older than data that the caller has just stored.
  use_query_cache: 0,
  // All rows of a key are in the same table partition, so each partition can be merged separately. Attachments of
  // runs whose retention was extended are an exception: their queries use LIMIT BY.
  do_not_merge_across_partitions_select_final: 1,
  // A skip index may exclude the newest row of a key. In exact mode, ClickHouse also reads the other rows of the key.
  use_skip_indexes_if_final: 1,
  use_skip_indexes_if_final_exact_mode: 1,
  optimize_read_in_order: 1,
  // Conditions on values that can change in a merge must be evaluated on the merged row.
  optimize_move_to_prewhere_if_final: 0,
  // In a cluster, a subquery reads all shards once, not only the shard that evaluates the condition.
  distributed_product_mode: 'global',
  // Conditions on a complete sharding key, such as tenant and trace, are evaluated only on the shard that has the rows.
  optimize_skip_unused_shards: 1,
  skip_unavailable_shards: 0,
} as const satisfies ClickHouseSettings;

const insertSettings = {
  ...formatSettings,
  ...completeResultSettings,
  // A response means that the rows are stored. With server-side batching (the default since 26.x), a retry could also
  // be part of a different batch.
  async_insert: 0,
  optimize_on_insert: 1,
  // Every table merges repeated rows. Deduplication would also drop rows that are inserted again after a deletion.
  insert_deduplicate: 0,
  materialized_views_ignore_errors: 0,
  // In a cluster, a response means that every shard has stored its rows.
  distributed_foreground_insert: 1,
  // INSERT … SELECT inserts the merged result, not a separate result for each shard.
  parallel_distributed_insert_select: '0',
  // A missing field, or a null in a non-nullable column, is an error and is not silently replaced by a default.
  input_format_avro_allow_missing_fields: 0,
  input_format_null_as_default: 0,
  insert_null_as_default: 0,
  max_partitions_per_insert_block: '100',
  throw_on_max_partitions_per_insert_block: 1,
  // Insert batches have fewer rows than this limit, so each insert batch is one block.
  max_insert_block_size: '1048449',
} as const satisfies ClickHouseSettings;

/**
 * Settings for queries only. With them, ClickHouse cancels a query if the client disconnects. It does so only for
 * read-only queries.
 */
const queryOnlySettings = {
  readonly: '2',
  cancel_http_readonly_queries_on_client_close: 1,
} as const satisfies ClickHouseSettings;

/**
 * Settings for results that are saved to a file. Results are streamed, so the reader must check at the end that the
 * result is complete. Parquet files are temporary input for DuckDB.
 */
const fileSettings = {
  wait_end_of_query: 0,
  http_response_buffer_size: '0',
  http_write_exception_in_output_format: 0,
  output_format_parquet_string_as_string: 1,
  output_format_parquet_compression_method: 'lz4',
  output_format_parquet_version: '2.latest',
  output_format_parquet_compliant_nested_types: 1,
} as const satisfies ClickHouseSettings;

/**
 * For queries that find few rows by their keys. They take half of the time if they read the files themselves instead of
 * passing each read to a pool of threads. With `FINAL` they take three quarters of the time if they do not divide the rows
 * to merge among threads, which opens each file several times.
 */
export const lookupSettings = {
  local_filesystem_read_method: 'pread',
  split_parts_ranges_into_intersecting_and_non_intersecting_final: 0,
  split_intersecting_parts_ranges_into_layers_final: 0,
} as const satisfies ClickHouseSettings;

/**
 * For statements that copy rows of any size, such as runs. With blocks of the default size, 256 MiB, ClickHouse needs gigabytes
 * of memory for values and skip indexes.
 */
export const copySettings = {
  min_insert_block_size_bytes: String(16 * 1024 ** 2),
  max_block_size: '64',
  max_threads: 1,
} as const satisfies ClickHouseSettings;

const writeSettings = { ...readSettings, ...insertSettings } as const satisfies ClickHouseSettings;

/**
 * Settings profiles. `read` and `file` are for queries, `insert` is for inserted rows, and the others are for other
 * statements, such as INSERT … SELECT and DDL.
 */
export const profiles = {
  read: { ...readSettings, ...queryOnlySettings },
  insert: insertSettings,
  write: writeSettings,
  /** For results that are saved to a file. */
  file: { ...readSettings, ...queryOnlySettings, ...fileSettings },
  /** For `ALTER TABLE … DELETE`. ClickHouse responds after the rows have been deleted on all replicas. */
  mutation: {
    ...writeSettings,
    mutations_sync: '2',
    // Otherwise replicated tables refuse conditions with subqueries. In `deleteRows`, subqueries read only stored ids.
    allow_nondeterministic_mutations: 1,
  },
  /**
   * For `INSERT … SELECT` into any number of table partitions, such as a roll-up of hours in more than a hundred
   * months.
   */
  bulk: { ...writeSettings, max_partitions_per_insert_block: '0' },
} as const satisfies Record<string, ClickHouseSettings>;

export type Profile = keyof typeof profiles;
/** Profiles of statements that write. */
export type CommandProfile = 'write' | 'mutation' | 'bulk';

/** Whether statements of the profile only read, so that they can be sent again, and stopped when a client leaves. */
export function isReadProfile(profile: Profile): boolean {
  return 'readonly' in profiles[profile];
}

/**
 * How the tables are stored. This depends on RUNLAKE_CLICKHOUSE_CLUSTER and on the server:
 *   - `single`: no cluster is configured. There are plain tables on one server.
 *   - `cluster`: every server has local tables (`runs_local`) with a part of the rows, and Distributed tables (`runs`)
 *     over the local tables of all shards. The local tables are replicated if the servers have a Keeper.
 *   - `replicated`: the database itself is replicated, as in ClickHouse Cloud, so that a table which one server
 *     creates exists on all servers. There are replicated tables but no Distributed tables, because such a database
 *     has one shard.
 */
export type Layout =
  | { readonly kind: 'single' }
  | {
      readonly kind: 'cluster';
      readonly cluster: string;
      readonly shards: number;
      /** Number of replicas of each shard. */
      readonly replicas: number;
      readonly hasKeeper: boolean;
    }
  | { readonly kind: 'replicated'; readonly replicas: number; readonly isShared: boolean };

/**
 * Returns the settings with which a read from any replica returns every acknowledged row.
 *
 * An insert is acknowledged when every replica of the shard has its rows. A majority would not be sufficient, and
 * `select_sequential_consistency` of replicated tables excludes concurrent inserts. Therefore, while a replica is down,
 * inserts fail and events wait in the log, but reads continue. In ClickHouse Cloud, the replicas share their storage,
 * so no quorum is needed; however, a replica may not know the newest parts yet.
 */
export function buildLayoutSettings(layout: Layout, profile: Profile): ClickHouseSettings {
  if (layout.kind === 'single') return {};
  if (layout.kind === 'replicated' && layout.isShared) return { select_sequential_consistency: '1' };
  if (layout.replicas === 1 || isReadProfile(profile)) return {};
  return { insert_quorum: String(layout.replicas), insert_quorum_parallel: 1 };
}
