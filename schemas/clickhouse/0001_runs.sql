-- Run events as the sink inserts them. Nothing is stored here: a view stores the events in `runs`, a view of `runs` passes
-- their keys to `run_keys`, and the views of `run_keys` fill the tables derived from runs. ClickHouse commits a table
-- before the views that read from it, but the views of one table in any order. So an insert that is interrupted leaves no
-- row in a derived table, such as a trace that is counted, without its run in `runs`.
--
-- JSON columns hold the text as received, byte for byte. Lists are JSON text, not arrays.
CREATE TABLE run_events (
  -- The order in which the log accepted the events; see `LogRecord.version`.
  version UInt64,
  -- The version again if the event itself names its project and trace time; otherwise 2^63 - 1.
  location_version UInt64,
  -- Tier of the trace (1 shortlived, 2 longlived) and the time when it expires; 2100 means never.
  trace_tier UInt8 DEFAULT 2,
  expires_at DateTime('UTC') DEFAULT toDateTime(4102444800, 'UTC'),
  tenant_id UUID,
  trace_id UUID,
  id UUID,
  session_id UUID,
  start_time DateTime64(6, 'UTC'),
  trace_time DateTime64(6, 'UTC'),
  is_patch Bool,
  first_received_at DateTime64(6, 'UTC'),
  user_id UUID,
  key_id UUID,
  dotted_order Nullable(String),
  deleted_at Nullable(DateTime64(6, 'UTC')),
  name Nullable(String),
  run_type LowCardinality(Nullable(String)),
  started_at Nullable(DateTime64(6, 'UTC')),
  ended_at Nullable(DateTime64(6, 'UTC')),
  parent_run_id Nullable(UUID),
  reference_example_id Nullable(UUID),
  tags Nullable(String),
  inputs Nullable(String),
  outputs Nullable(String),
  error Nullable(String),
  events Nullable(String),
  extra Nullable(String),
  serialized Nullable(String),
  prompt_tokens Nullable(Int64),
  completion_tokens Nullable(Int64),
  total_tokens Nullable(Int64),
  prompt_cost Nullable(String),
  completion_cost Nullable(String),
  total_cost Nullable(String),
  usage_details Nullable(String),
  first_token_time Nullable(DateTime64(6, 'UTC')),
  -- The price of the model that the event names, as of its acceptance; `price_source` says where the event names it. A
  -- model without a price has only the source. The kinds of tokens with their own prices are pairs.
  price_source Nullable(Int64),
  price_model_id Nullable(UUID),
  prompt_price Nullable(String),
  completion_price Nullable(String),
  price_details Nullable(String)
)
ENGINE = Null
SHARD BY (tenant_id, trace_id);

-- Runs: one row per run once merged. Every column is merged by a minimum or a maximum, so that neither the order nor the
-- number of inserts of an event can change a value: a value that several events set is that of the highest rank. The rank
-- of an event is its version, with the highest bit set for a patch, so that a patch wins over every post. A ranked column is
-- a pair of rank and value, or, for texts, one string: the rank in eight bytes, most significant first, then the text. It
-- takes half of the files of a pair. A null has rank 0, or the empty string, so that it never replaces a value. The key times
-- come from dotted_order and never change, so a run is never in two partitions. Granules and blocks are small, because
-- pages read single runs by their keys, each from one granule, and skip indexes select few runs.
CREATE TABLE runs (
  tenant_id UUID,
  session_id UUID,
  start_time DateTime64(6, 'UTC'),
  trace_id UUID,
  id UUID,
  -- All events of a trace have the same time. If it had to be corrected, the time with the highest rank wins.
  ranked_trace_time SimpleAggregateFunction(max, Tuple(UInt64, DateTime64(6, 'UTC'))),
  location_version SimpleAggregateFunction(min, UInt64),
  first_received_at SimpleAggregateFunction(min, DateTime64(6, 'UTC')),
  -- All rows of a trace have the same values, so that they expire together. Keeping a trace copies its rows with higher
  -- values. Reads leave out expired rows; they stay for a week, so that exports that have begun can finish.
  trace_tier SimpleAggregateFunction(max, UInt8),
  expires_at SimpleAggregateFunction(max, DateTime('UTC')),
  -- Time, user and key of the event that was accepted first.
  sender SimpleAggregateFunction(min, Tuple(DateTime64(6, 'UTC'), UUID, UUID)),
  ranked_dotted_order SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  -- Once set, it stays set: after a lightweight DELETE a late patch would restore half a run.
  deleted_at SimpleAggregateFunction(max, Nullable(DateTime64(6, 'UTC'))),
  ranked_name SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_run_type SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_started_at SimpleAggregateFunction(max, Tuple(UInt64, DateTime64(6, 'UTC'))),
  ranked_ended_at SimpleAggregateFunction(max, Tuple(UInt64, DateTime64(6, 'UTC'))),
  ranked_parent_run_id SimpleAggregateFunction(max, Tuple(UInt64, UUID)),
  ranked_reference_example_id SimpleAggregateFunction(max, Tuple(UInt64, UUID)),
  ranked_tags SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_inputs SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_outputs SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_error SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_events SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_extra SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_serialized SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_prompt_tokens SimpleAggregateFunction(max, Tuple(UInt64, Int64)),
  ranked_completion_tokens SimpleAggregateFunction(max, Tuple(UInt64, Int64)),
  ranked_total_tokens SimpleAggregateFunction(max, Tuple(UInt64, Int64)),
  ranked_prompt_cost SimpleAggregateFunction(max, String),
  ranked_completion_cost SimpleAggregateFunction(max, String),
  ranked_total_cost SimpleAggregateFunction(max, String),
  ranked_usage_details SimpleAggregateFunction(max, String) CODEC(ZSTD(1)),
  ranked_first_token_time SimpleAggregateFunction(max, Tuple(UInt64, DateTime64(6, 'UTC'))),
  -- Sizes of the texts of any length, with their ranks: of the longest inputs and outputs that an event set, and of all
  -- others of the event that set most. Their sum is at least the size of inputs and outputs, and too low only if several
  -- events each set other long texts: by at most the number of these events, of which there are no more than texts.
  inputs_bytes SimpleAggregateFunction(max, UInt64),
  outputs_bytes SimpleAggregateFunction(max, UInt64),
  other_bytes SimpleAggregateFunction(max, UInt64),
  -- Source, rank, id, dollars a prompt token and a completion token, and dollars a token of the kinds of prompt and of
  -- completion tokens that have their own price. The price of the strongest source wins, then rank. An event that states
  -- costs has the strongest source, and no price.
  ranked_price SimpleAggregateFunction(max, Tuple(UInt8, UInt64, Nullable(UUID), Nullable(Decimal(76, 20)), Nullable(Decimal(76, 20)),
    Array(Tuple(String, Decimal(76, 20))), Array(Tuple(String, Decimal(76, 20))))) CODEC(ZSTD(1)),
  trace_time DateTime64(6, 'UTC') ALIAS ranked_trace_time.2,
  dotted_order Nullable(String) ALIAS if(empty(ranked_dotted_order), NULL, substring(ranked_dotted_order, 9)),
  name Nullable(String) ALIAS if(empty(ranked_name), NULL, substring(ranked_name, 9)),
  run_type Nullable(String) ALIAS if(empty(ranked_run_type), NULL, substring(ranked_run_type, 9)),
  started_at Nullable(DateTime64(6, 'UTC')) ALIAS if(ranked_started_at.1 = 0, NULL, ranked_started_at.2),
  ended_at Nullable(DateTime64(6, 'UTC')) ALIAS if(ranked_ended_at.1 = 0, NULL, ranked_ended_at.2),
  parent_run_id Nullable(UUID) ALIAS if(ranked_parent_run_id.1 = 0, NULL, ranked_parent_run_id.2),
  reference_example_id Nullable(UUID) ALIAS if(ranked_reference_example_id.1 = 0, NULL, ranked_reference_example_id.2),
  tags Nullable(String) ALIAS if(empty(ranked_tags), NULL, substring(ranked_tags, 9)),
  inputs Nullable(String) ALIAS if(empty(ranked_inputs), NULL, substring(ranked_inputs, 9)),
  outputs Nullable(String) ALIAS if(empty(ranked_outputs), NULL, substring(ranked_outputs, 9)),
  error Nullable(String) ALIAS if(empty(ranked_error), NULL, substring(ranked_error, 9)),
  events Nullable(String) ALIAS if(empty(ranked_events), NULL, substring(ranked_events, 9)),
  extra Nullable(String) ALIAS if(empty(ranked_extra), NULL, substring(ranked_extra, 9)),
  serialized Nullable(String) ALIAS if(empty(ranked_serialized), NULL, substring(ranked_serialized, 9)),
  prompt_tokens Nullable(Int64) ALIAS if(ranked_prompt_tokens.1 = 0, NULL, ranked_prompt_tokens.2),
  completion_tokens Nullable(Int64) ALIAS if(ranked_completion_tokens.1 = 0, NULL, ranked_completion_tokens.2),
  total_tokens Nullable(Int64) ALIAS if(ranked_total_tokens.1 = 0, NULL, ranked_total_tokens.2),
  -- Costs that no event states are those of the tokens: each kind of token with its own price at that price, the others
  -- at the price of prompt or completion tokens. See docs/decisions/0141-costs.md.
  price_model_id Nullable(UUID) ALIAS ranked_price.3,
  prompt_kinds Array(Tuple(String, UInt64, Decimal(76, 20))) ALIAS arrayMap(
    price -> (price.1, JSONExtractUInt(substring(ranked_usage_details, 9), 'prompt_token_details', price.1), price.2), ranked_price.6),
  completion_kinds Array(Tuple(String, UInt64, Decimal(76, 20))) ALIAS arrayMap(
    price -> (price.1, JSONExtractUInt(substring(ranked_usage_details, 9), 'completion_token_details', price.1), price.2), ranked_price.7),
  prompt_cost_by_price Nullable(Decimal(76, 20)) ALIAS if(isNull(prompt_tokens), NULL,
    ranked_price.4 * greatest(0, prompt_tokens - arraySum(prompt_kinds.2)) + arraySum(kind -> kind.2 * kind.3, prompt_kinds)),
  completion_cost_by_price Nullable(Decimal(76, 20)) ALIAS if(isNull(completion_tokens), NULL,
    ranked_price.5 * greatest(0, completion_tokens - arraySum(completion_kinds.2)) + arraySum(kind -> kind.2 * kind.3, completion_kinds)),
  prompt_cost Nullable(String) ALIAS coalesce(if(empty(ranked_prompt_cost), NULL, substring(ranked_prompt_cost, 9)), toString(prompt_cost_by_price)),
  completion_cost Nullable(String) ALIAS coalesce(if(empty(ranked_completion_cost), NULL, substring(ranked_completion_cost, 9)), toString(completion_cost_by_price)),
  total_cost Nullable(String) ALIAS coalesce(if(empty(ranked_total_cost), NULL, substring(ranked_total_cost, 9)),
    toString(arrayReduce('sum', [prompt_cost_by_price, completion_cost_by_price]))),
  usage_details Nullable(String) ALIAS multiIf(empty(ranked_usage_details), NULL,
    empty(ranked_price.6) AND empty(ranked_price.7), substring(ranked_usage_details, 9),
    concat(substring(ranked_usage_details, 9, length(ranked_usage_details) - 9),
      replaceOne(concat(',"prompt_cost_details":{', arrayStringConcat(arrayMap(
        kind -> concat('"', kind.1, '":"', toString(kind.2 * kind.3), '"'), arrayFilter(kind -> kind.2 > 0, prompt_kinds)), ','), '}'),
        ',"prompt_cost_details":{}', ''),
      replaceOne(concat(',"completion_cost_details":{', arrayStringConcat(arrayMap(
        kind -> concat('"', kind.1, '":"', toString(kind.2 * kind.3), '"'), arrayFilter(kind -> kind.2 > 0, completion_kinds)), ','), '}'),
        ',"completion_cost_details":{}', ''), '}')),
  first_token_time Nullable(DateTime64(6, 'UTC')) ALIAS if(ranked_first_token_time.1 = 0, NULL, ranked_first_token_time.2),
  states_usage Bool ALIAS greatest(ranked_prompt_tokens.1, ranked_completion_tokens.1, ranked_total_tokens.1) > 0 OR
    notEmpty(ranked_prompt_cost) OR notEmpty(ranked_completion_cost) OR notEmpty(ranked_total_cost) OR notEmpty(ranked_usage_details),
  INDEX by_trace trace_id TYPE bloom_filter(0.01) GRANULARITY 1,
  -- For filters (`pipelines/runs/filter/indexed-condition.ts` has the same expressions). JSON that ClickHouse cannot parse is
  -- marked by '\x01'. Metadata is indexed as key and value, and nested metadata as its key alone.
  INDEX by_name name TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX by_tag if(isValidJSON(ifNull(tags, '[]')), JSONExtract(ifNull(tags, '[]'), 'Array(String)'), ['\x01'])
    TYPE bloom_filter(0.01) GRANULARITY 1,
  INDEX by_metadata if(isValidJSON(ifNull(extra, '{}')), arrayMap(pair ->
      if(startsWith(pair.2, '{') OR startsWith(pair.2, '['), concat(pair.1, '\x01'),
        concat(pair.1, '\x02', if(startsWith(pair.2, '"'), JSONExtractString(pair.2), pair.2))),
      JSONExtractKeysAndValuesRaw(ifNull(extra, '{}'), 'metadata')), ['\x01'])
    TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, trace_id)
PARTITION BY toMonday(start_time)
ORDER BY (tenant_id, session_id, start_time, trace_id, id)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS merge_with_ttl_timeout = 86400, index_granularity = 1024, index_granularity_bytes = 262144, min_compress_block_size = 16384;

CREATE MATERIALIZED VIEW runs_of_events TO runs AS
WITH bitOr(version, bitShiftLeft(toUInt64(is_patch), 63)) AS rank, reinterpretAsFixedString(byteSwap(rank)) AS rank_bytes
SELECT
  tenant_id, session_id, start_time, trace_id, id, (toUInt64(0), trace_time) AS ranked_trace_time, location_version,
  first_received_at, trace_tier, expires_at, (first_received_at, user_id, key_id) AS sender,
  ifNull(concat(rank_bytes, dotted_order), '') AS ranked_dotted_order,
  deleted_at,
  ifNull(concat(rank_bytes, name), '') AS ranked_name,
  ifNull(concat(rank_bytes, run_type), '') AS ranked_run_type,
  (if(isNull(started_at), 0, rank), assumeNotNull(started_at)) AS ranked_started_at,
  (if(isNull(ended_at), 0, rank), assumeNotNull(ended_at)) AS ranked_ended_at,
  (if(isNull(parent_run_id), 0, rank), assumeNotNull(parent_run_id)) AS ranked_parent_run_id,
  (if(isNull(reference_example_id), 0, rank), assumeNotNull(reference_example_id)) AS ranked_reference_example_id,
  ifNull(concat(rank_bytes, tags), '') AS ranked_tags,
  ifNull(concat(rank_bytes, inputs), '') AS ranked_inputs,
  ifNull(concat(rank_bytes, outputs), '') AS ranked_outputs,
  ifNull(concat(rank_bytes, error), '') AS ranked_error,
  ifNull(concat(rank_bytes, events), '') AS ranked_events,
  ifNull(concat(rank_bytes, extra), '') AS ranked_extra,
  ifNull(concat(rank_bytes, serialized), '') AS ranked_serialized,
  (if(isNull(prompt_tokens), 0, rank), assumeNotNull(prompt_tokens)) AS ranked_prompt_tokens,
  (if(isNull(completion_tokens), 0, rank), assumeNotNull(completion_tokens)) AS ranked_completion_tokens,
  (if(isNull(total_tokens), 0, rank), assumeNotNull(total_tokens)) AS ranked_total_tokens,
  ifNull(concat(rank_bytes, prompt_cost), '') AS ranked_prompt_cost,
  ifNull(concat(rank_bytes, completion_cost), '') AS ranked_completion_cost,
  ifNull(concat(rank_bytes, total_cost), '') AS ranked_total_cost,
  ifNull(concat(rank_bytes, usage_details), '') AS ranked_usage_details,
  (if(isNull(first_token_time), 0, rank), assumeNotNull(first_token_time)) AS ranked_first_token_time,
  length(ranked_inputs) AS inputs_bytes,
  length(ranked_outputs) AS outputs_bytes,
  length(ranked_dotted_order) + length(ranked_name) + length(ranked_tags) + length(ranked_error) + length(ranked_events) +
    length(ranked_extra) + length(ranked_serialized) + length(ranked_usage_details) AS other_bytes,
  (toUInt8(ifNull(price_source, 0)), if(isNull(price_source), 0, rank), price_model_id,
    toDecimal256OrNull(prompt_price, 20), toDecimal256OrNull(completion_price, 20),
    JSONExtract(ifNull(price_details, ''), 'prompt', 'Array(Tuple(String, Decimal(76, 20)))'),
    JSONExtract(ifNull(price_details, ''), 'completion', 'Array(Tuple(String, Decimal(76, 20)))')) AS ranked_price
FROM run_events;

-- The keys of runs, for the tables derived from them. Nothing is stored here. Inserting the keys of stored runs again
-- completes the derived tables, because they merge by minimum and maximum, too.
CREATE TABLE run_keys (
  tenant_id UUID,
  session_id UUID,
  start_time DateTime64(6, 'UTC'),
  trace_id UUID,
  id UUID,
  trace_time DateTime64(6, 'UTC'),
  location_version UInt64,
  trace_tier UInt8,
  expires_at DateTime('UTC'),
  received_at DateTime64(6, 'UTC'),
  user_id UUID,
  key_id UUID,
  -- The start time again if the run states tokens or costs; otherwise null.
  usage_time Nullable(DateTime64(6, 'UTC'))
)
ENGINE = Null
SHARD BY (tenant_id, trace_id);

CREATE MATERIALIZED VIEW run_keys_of_runs TO run_keys AS
SELECT tenant_id, session_id, start_time, trace_id, id, ranked_trace_time.2 AS trace_time, location_version, trace_tier,
  expires_at, sender.1 AS received_at, sender.2 AS user_id, sender.3 AS key_id,
  if(states_usage, start_time, NULL) AS usage_time
FROM runs;

-- The basis of usage: one row per trace. `pick` is a minimum, so that the order of arrival cannot change it. Read it
-- by position (pick.3): a subcolumn by name under FINAL reads unmerged rows.
CREATE TABLE traces (
  tenant_id UUID,
  hour DateTime('UTC'),
  trace_id UUID,
  pick SimpleAggregateFunction(min, Tuple(accepted_at DateTime64(6, 'UTC'), run_id UUID, session_id UUID, user_id UUID, key_id UUID))
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, trace_id)
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant_id, hour, trace_id);

CREATE MATERIALIZED VIEW traces_of_keys TO traces AS
SELECT tenant_id, toStartOfHour(trace_time) AS hour, trace_id, min((received_at, id, session_id, user_id, key_id)) AS pick
FROM run_keys
GROUP BY tenant_id, hour, trace_id;

-- The key of a run by its id alone, of its event that was accepted first. Each id that a query looks up reads one block of
-- a part, so blocks are small, as in the other tables that are read by random ids.
CREATE TABLE run_locator (
  tenant_id UUID,
  id UUID,
  pick SimpleAggregateFunction(min, Tuple(accepted_at DateTime64(6, 'UTC'), start_time DateTime64(6, 'UTC'), trace_id UUID, trace_time DateTime64(6, 'UTC'), session_id UUID)),
  trace_tier SimpleAggregateFunction(max, UInt8),
  expires_at SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, pick.3)
ORDER BY (tenant_id, id)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 1024, min_compress_block_size = 16384, max_compress_block_size = 65536, merge_with_ttl_timeout = 86400;

CREATE MATERIALIZED VIEW run_locator_of_keys TO run_locator AS
SELECT tenant_id, id, min((received_at, start_time, trace_id, trace_time, session_id)) AS pick,
  max(run.trace_tier) AS trace_tier, max(run.expires_at) AS expires_at
FROM run_keys AS run
GROUP BY tenant_id, id;

-- Trace locations: the projects and times that the events of a trace are stored under, normally one. Of several the one
-- with the lowest version wins, and the sink moves the events there. The first and last start time of the runs bound the
-- range of `runs` that a read of the trace reads; over all locations, because runs are moved. The first and last start time
-- of the runs that state tokens or costs do so for a read of these; null if no run does.
CREATE TABLE trace_locations (
  tenant_id UUID,
  trace_id UUID,
  session_id UUID,
  trace_time DateTime64(6, 'UTC'),
  version SimpleAggregateFunction(min, UInt64),
  first_start SimpleAggregateFunction(min, DateTime64(6, 'UTC')),
  last_start SimpleAggregateFunction(max, DateTime64(6, 'UTC')),
  first_usage SimpleAggregateFunction(min, Nullable(DateTime64(6, 'UTC'))),
  last_usage SimpleAggregateFunction(max, Nullable(DateTime64(6, 'UTC'))),
  trace_tier SimpleAggregateFunction(max, UInt8),
  expires_at SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, trace_id)
ORDER BY (tenant_id, trace_id, session_id, trace_time)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 1024, min_compress_block_size = 16384, max_compress_block_size = 65536, merge_with_ttl_timeout = 86400;

CREATE MATERIALIZED VIEW trace_locations_of_keys TO trace_locations AS
SELECT tenant_id, trace_id, session_id, trace_time, min(location_version) AS version,
  min(start_time) AS first_start, max(start_time) AS last_start, min(usage_time) AS first_usage, max(usage_time) AS last_usage,
  max(run.trace_tier) AS trace_tier, max(run.expires_at) AS expires_at
FROM run_keys AS run
GROUP BY tenant_id, trace_id, session_id, trace_time;

-- Traces that were kept or deleted after they were stored. The sink looks up late events here.
CREATE TABLE trace_marks (
  tenant_id UUID,
  trace_id UUID,
  trace_tier SimpleAggregateFunction(max, UInt8),
  expires_at SimpleAggregateFunction(max, DateTime('UTC')),
  deleted_at SimpleAggregateFunction(max, Nullable(DateTime64(6, 'UTC')))
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, trace_id)
ORDER BY (tenant_id, trace_id)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 1024, min_compress_block_size = 16384, max_compress_block_size = 65536, merge_with_ttl_timeout = 86400;
