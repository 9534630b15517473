import type { ClickHouseSettings } from '@clickhouse/client';
import type { Layout } from './layout.ts';

/**
 * The ClickHouse settings that Runlake depends on. Every statement carries one complete profile, because the defaults
 * of servers differ between releases and installations.
 */

/** Format of values in results and parameters. */
const valueFormats = {
  session_timezone: 'UTC',
  date_time_input_format: 'best_effort',
  // 2026-01-02T03:04:05.123456Z
  date_time_output_format: 'iso',
  // Integers beyond 2^53 lose digits, so queries that read such values (hashes) cast them to text.
  output_format_json_quote_64bit_integers: 0,
  output_format_json_quote_64bit_floats: 0,
  output_format_json_quote_decimals: 0,
  output_format_json_quote_denormals: 0,
  output_format_json_escape_forward_slashes: 0,
  output_format_json_named_tuples_as_objects: 1,
  output_format_json_array_of_rows: 1,
  // The status of the response then covers the whole result: no error can follow a 200.
  wait_end_of_query: 1,
} as const satisfies ClickHouseSettings;

/**
 * A query returns the complete result or an error. Otherwise ClickHouse responds 200 with a partial result when it hits
 * a limit.
 */
const completeResults = {
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
  ...valueFormats,
  ...completeResults,
  // A cached result may be older than data that the caller has just stored.
  use_query_cache: 0,
  // All rows of a key are in one table partition, so partitions can be merged separately.
  do_not_merge_across_partitions_select_final: 1,
  // A skip index may hide the newest row of a key; the exact mode also reads the other rows of that key.
  use_skip_indexes_if_final: 1,
  use_skip_indexes_if_final_exact_mode: 1,
  optimize_read_in_order: 1,
  // Conditions on values that a merge may change must be evaluated on the merged row.
  optimize_move_to_prewhere_if_final: 0,
  // In a cluster a subquery reads the rows of all shards, once, not those of the shard that evaluates the condition.
  distributed_product_mode: 'global',
  // Conditions on a whole sharding key, such as tenant and trace, are evaluated on the shard of its rows only.
  optimize_skip_unused_shards: 1,
  skip_unavailable_shards: 0,
} as const satisfies ClickHouseSettings;

const insertSettings = {
  ...valueFormats,
  ...completeResults,
  // A response means that the rows are stored. Server-side batching (default since 26.x) could also batch a retry
  // differently.
  async_insert: 0,
  optimize_on_insert: 1,
  // Repeated rows merge in every table. Deduplication would also drop rows that were deleted and are inserted again.
  insert_deduplicate: 0,
  materialized_views_ignore_errors: 0,
  // In a cluster a response means that every shard has stored its rows.
  distributed_foreground_insert: 1,
  // INSERT … SELECT inserts the merged result, not one result of each shard.
  parallel_distributed_insert_select: '0',
  // A missing field, or a null in a column that is not nullable, is an error instead of a silent default.
  input_format_avro_allow_missing_fields: 0,
  input_format_null_as_default: 0,
  insert_null_as_default: 0,
  max_partitions_per_insert_block: '100',
  throw_on_max_partitions_per_insert_block: 1,
  // Insert batches have fewer rows than this, so each is one block.
  max_insert_block_size: '1048449',
} as const satisfies ClickHouseSettings;

/** If the client disconnects, ClickHouse cancels the query; it does so only for read-only queries. */
const queryOnlySettings = {
  readonly: '2',
  cancel_http_readonly_queries_on_client_close: 1,
} as const satisfies ClickHouseSettings;

/**
 * Results are streamed, so the reader must check at the end that the result is complete. Parquet files are temporary
 * input for DuckDB.
 */
const fileSettings = {
  wait_end_of_query: 0,
  http_write_exception_in_output_format: 0,
  output_format_parquet_string_as_string: 1,
  output_format_parquet_compression_method: 'lz4',
  output_format_parquet_version: '2.latest',
  output_format_parquet_compliant_nested_types: 1,
} as const satisfies ClickHouseSettings;

/**
 * For queries that find few rows by their keys. They take half of the time if they read the files themselves instead of
 * passing each read to a pool of threads.
 */
export const lookupSettings = { local_filesystem_read_method: 'pread' } as const satisfies ClickHouseSettings;

const writeSettings = { ...readSettings, ...insertSettings } as const satisfies ClickHouseSettings;

/**
 * `read` and `file` are for queries, `insert` for inserted rows, the others for other statements, such as INSERT …
 * SELECT and DDL.
 */
export const profiles = {
  read: { ...readSettings, ...queryOnlySettings },
  insert: insertSettings,
  write: writeSettings,
  /** Results that are saved to a file. */
  file: { ...readSettings, ...queryOnlySettings, ...fileSettings },
  /** `ALTER TABLE … DELETE`: ClickHouse responds after the rows are deleted on all replicas. */
  mutation: {
    ...writeSettings,
    mutations_sync: '2',
    // Replicated tables refuse conditions with subqueries otherwise. Those of `deleteRows` read ids that are stored.
    allow_nondeterministic_mutations: 1,
  },
  /** `INSERT … SELECT` into any number of table partitions, such as the roll-up of hours of more than a hundred months. */
  bulk: { ...writeSettings, max_partitions_per_insert_block: '0' },
} as const satisfies Record<string, ClickHouseSettings>;

export type Profile = keyof typeof profiles;
/** Profiles of statements that write. */
export type CommandProfile = 'write' | 'mutation' | 'bulk';

/**
 * Returns the settings with which a read returns every acknowledged row, from any replica.
 *
 * An insert is acknowledged when every replica of the shard has its rows: a majority would not be enough, and
 * `select_sequential_consistency` of replicated tables excludes concurrent inserts. So while a replica is down, inserts
 * fail and events wait in the log; reads continue. In ClickHouse Cloud replicas share their storage, so no quorum is
 * needed, but a replica may not know the newest parts yet.
 */
export function layoutSettings(layout: Layout, profile: Profile): ClickHouseSettings {
  if (layout.kind === 'single') return {};
  if (layout.kind === 'replicated' && layout.isShared) return { select_sequential_consistency: '1' };
  if (layout.replicas === 1 || 'readonly' in profiles[profile]) return {};
  return { insert_quorum: String(layout.replicas), insert_quorum_parallel: 1 };
}
