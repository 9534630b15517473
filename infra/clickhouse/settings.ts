import type { ClickHouseSettings } from '@clickhouse/client';

/**
 * The settings that Runlake depends on. One profile goes with every statement, whole; nothing is left to the defaults of
 * a server, which differ between releases and installations.
 */

/** How values look in answers and parameters, the same everywhere. */
const representation = {
  session_timezone: 'UTC',
  date_time_input_format: 'best_effort',
  // 2026-01-02T03:04:05.123456Z
  date_time_output_format: 'iso',
  // Integers beyond 2^53 lose digits: queries that read such (hashes) cast them to text.
  output_format_json_quote_64bit_integers: 0,
  output_format_json_quote_64bit_floats: 0,
  output_format_json_quote_decimals: 0,
  output_format_json_quote_denormals: 0,
  output_format_json_escape_forward_slashes: 0,
  output_format_json_named_tuples_as_objects: 1,
  output_format_json_array_of_rows: 1,
  // The status of the answer then holds for the whole result: no failure can come after a 200.
  wait_end_of_query: 1,
} as const satisfies ClickHouseSettings;

/** A result is whole or an error: at a limit ClickHouse would otherwise answer 200 with what it has so far. */
const wholeOrNothing = {
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

const read = {
  ...representation,
  ...wholeOrNothing,
  // A result of the cache may be older than what its reader has just stored.
  use_query_cache: 0,
  // Rows of one key never lie in two table partitions, so each can be merged alone.
  do_not_merge_across_partitions_select_final: 1,
  // An index may hide the newer row of a key; the exact mode reads the rows beside it too.
  use_skip_indexes_if_final: 1,
  use_skip_indexes_if_final_exact_mode: 1,
  optimize_read_in_order: 1,
  // Conditions on values that a merge may change are asked of the merged row.
  optimize_move_to_prewhere_if_final: 0,
} as const satisfies ClickHouseSettings;

const insert = {
  ...representation,
  ...wholeOrNothing,
  // An answer means: stored. Server-side batching (on by default since 26.x) would also cut differently on a retry.
  async_insert: 0,
  optimize_on_insert: 1,
  insert_deduplicate: 1,
  deduplicate_blocks_in_dependent_materialized_views: 1,
  materialized_views_ignore_errors: 0,
  // A column that the records lack, or a null where none may be, is an error and no silent default.
  input_format_avro_allow_missing_fields: 0,
  input_format_null_as_default: 0,
  insert_null_as_default: 0,
  max_partitions_per_insert_block: '100',
  throw_on_max_partitions_per_insert_block: 1,
  // One cut, one block: a cut stays below this.
  max_insert_block_size: '1048449',
} as const satisfies ClickHouseSettings;

/** A caller that goes away takes its query with it. ClickHouse does that for queries only that cannot write. */
const queryOnly = {
  readonly: '2',
  cancel_http_readonly_queries_on_client_close: 1,
} as const satisfies ClickHouseSettings;

/** Results are sent while they are made: whether one is whole shows at its end. Parquet is for DuckDB, and soon gone. */
const intoFile = {
  wait_end_of_query: 0,
  http_write_exception_in_output_format: 0,
  output_format_parquet_string_as_string: 1,
  output_format_parquet_compression_method: 'lz4',
  output_format_parquet_version: '2.latest',
  output_format_parquet_compliant_nested_types: 1,
} as const satisfies ClickHouseSettings;

/**
 * What goes with inserts to servers that know it. Releases that do have it above `insert_deduplicate`: where it is switched
 * off there, one token would store twice. The others refuse every statement that names it.
 */
export const newerInsertSettings: ClickHouseSettings & Record<string, string> = { deduplicate_insert: 'enable' };

const write = { ...read, ...insert } as const satisfies ClickHouseSettings;

/** `read` for queries, `insert` for bodies of rows, the rest for statements that may do both (INSERT … SELECT, DDL). */
export const profiles = {
  read: { ...read, ...queryOnly },
  insert,
  write,
  /** Results that go into a file. */
  file: { ...read, ...queryOnly, ...intoFile },
  /** `ALTER TABLE … DELETE`: the answer means that the rows are gone. */
  mutation: { ...write, mutations_sync: '1' },
  /** Recounts. Hours of more than a hundred months are far from usual, but one pass may meet them. */
  recount: { ...write, max_partitions_per_insert_block: '0' },
  /** Repairs out of what is stored. The same block may have been there once and be gone, so that it is no repeat. */
  repair: { ...write, max_partitions_per_insert_block: '0', insert_deduplicate: 0 },
} as const satisfies Record<string, ClickHouseSettings>;

export type Profile = keyof typeof profiles;
/** Those of statements that write. */
export type CommandProfile = 'write' | 'mutation' | 'recount' | 'repair';
