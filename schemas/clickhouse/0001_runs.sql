-- Runs: one row per run once merged. A post and its patches have the same key; each column keeps its last value that
-- is not null. The key times come from dotted_order and never change, so a run is never in two partitions. Fields that
-- a post and a patch can both set have two columns: reads take coalesce(patch_x, post_x), so a late post overwrites
-- nothing. JSON columns hold the text as received, byte for byte. Lists are JSON text, not arrays: an empty array
-- would overwrite the earlier value, NULL does not.
CREATE TABLE runs (
  tenant_id UUID,
  session_id UUID,
  start_time DateTime64(6, 'UTC'),
  trace_id UUID,
  id UUID,
  trace_time DateTime64(6, 'UTC'),
  first_received_at SimpleAggregateFunction(min, DateTime64(6, 'UTC')),
  -- When the newest event of the run was accepted: a replay of an older event would undo later changes. Each inserted
  -- row is one event, with its time in first_received_at; merges keep the maximum.
  last_received_at SimpleAggregateFunction(max, DateTime64(6, 'UTC')) DEFAULT first_received_at,
  user_id UUID,
  key_id UUID,
  dotted_order Nullable(String) CODEC(ZSTD(1)),
  -- Once set, it stays set: after a lightweight DELETE a late patch would restore half a run.
  deleted_at Nullable(DateTime64(6, 'UTC')),
  post_name Nullable(String) CODEC(ZSTD(1)),
  post_run_type LowCardinality(Nullable(String)),
  post_started_at Nullable(DateTime64(6, 'UTC')),
  post_ended_at Nullable(DateTime64(6, 'UTC')),
  post_parent_run_id Nullable(UUID),
  post_reference_example_id Nullable(UUID),
  post_tags Nullable(String) CODEC(ZSTD(1)),
  post_inputs Nullable(String) CODEC(ZSTD(1)),
  post_outputs Nullable(String) CODEC(ZSTD(1)),
  post_error Nullable(String) CODEC(ZSTD(1)),
  post_events Nullable(String) CODEC(ZSTD(1)),
  post_extra Nullable(String) CODEC(ZSTD(1)),
  post_serialized Nullable(String) CODEC(ZSTD(1)),
  post_prompt_tokens Nullable(Int64),
  post_completion_tokens Nullable(Int64),
  post_total_tokens Nullable(Int64),
  post_prompt_cost Nullable(String),
  post_completion_cost Nullable(String),
  post_total_cost Nullable(String),
  post_usage_details Nullable(String) CODEC(ZSTD(1)),
  post_first_token_time Nullable(DateTime64(6, 'UTC')),
  post_bytes Nullable(Int64),
  patch_name Nullable(String) CODEC(ZSTD(1)),
  patch_run_type LowCardinality(Nullable(String)),
  patch_started_at Nullable(DateTime64(6, 'UTC')),
  patch_ended_at Nullable(DateTime64(6, 'UTC')),
  patch_parent_run_id Nullable(UUID),
  patch_reference_example_id Nullable(UUID),
  patch_tags Nullable(String) CODEC(ZSTD(1)),
  patch_inputs Nullable(String) CODEC(ZSTD(1)),
  patch_outputs Nullable(String) CODEC(ZSTD(1)),
  patch_error Nullable(String) CODEC(ZSTD(1)),
  patch_events Nullable(String) CODEC(ZSTD(1)),
  patch_extra Nullable(String) CODEC(ZSTD(1)),
  patch_serialized Nullable(String) CODEC(ZSTD(1)),
  patch_prompt_tokens Nullable(Int64),
  patch_completion_tokens Nullable(Int64),
  patch_total_tokens Nullable(Int64),
  patch_prompt_cost Nullable(String),
  patch_completion_cost Nullable(String),
  patch_total_cost Nullable(String),
  patch_usage_details Nullable(String) CODEC(ZSTD(1)),
  patch_first_token_time Nullable(DateTime64(6, 'UTC')),
  patch_bytes Nullable(Int64),
  INDEX by_trace trace_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = CoalescingMergeTree
PARTITION BY toMonday(start_time)
ORDER BY (tenant_id, session_id, start_time, trace_id, id)
-- The window counts table partitions, not insert batches: one batch may write to fifty.
SETTINGS non_replicated_deduplication_window = 10000;

-- The basis of usage: one row per trace. `pick` is a minimum, so that the order of arrival cannot change it. Read it
-- by position (pick.3): a subcolumn by name under FINAL reads unmerged rows.
CREATE TABLE traces (
  tenant_id UUID,
  hour DateTime('UTC'),
  trace_id UUID,
  pick SimpleAggregateFunction(min, Tuple(accepted_at DateTime64(6, 'UTC'), run_id UUID, session_id UUID, user_id UUID, key_id UUID))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant_id, hour, trace_id)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW traces_of_runs TO traces AS
SELECT tenant_id, toStartOfHour(trace_time) AS hour, trace_id, min((first_received_at, id, session_id, user_id, key_id)) AS pick
FROM runs
GROUP BY tenant_id, hour, trace_id;

-- The key of a run by its id alone.
CREATE TABLE run_locator (
  tenant_id UUID,
  id UUID,
  start_time DateTime64(6, 'UTC'),
  trace_id UUID,
  trace_time DateTime64(6, 'UTC'),
  session_id UUID
)
ENGINE = ReplacingMergeTree
ORDER BY (tenant_id, id)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW run_locator_of_runs TO run_locator AS
SELECT tenant_id, id, start_time, trace_id, trace_time, session_id FROM runs;

-- Trace locations: project and time of the event that was accepted first. A minimum, so that neither the order of
-- inserts nor that of merges can change it. Read it by position (pick.3), as in `traces`.
CREATE TABLE trace_locations (
  tenant_id UUID,
  trace_id UUID,
  pick SimpleAggregateFunction(min, Tuple(accepted_at DateTime64(6, 'UTC'), trace_time DateTime64(6, 'UTC'), session_id UUID))
)
ENGINE = AggregatingMergeTree
ORDER BY (tenant_id, trace_id)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW trace_locations_of_runs TO trace_locations AS
SELECT tenant_id, trace_id, min((first_received_at, trace_time, session_id)) AS pick
FROM runs
GROUP BY tenant_id, trace_id;

-- First and last start time of the runs of a trace, so that reading a trace reads only this range of `runs`. Neither
-- the order of arrival nor duplicates change a minimum or maximum.
CREATE TABLE trace_spans (
  tenant_id UUID,
  trace_id UUID,
  first_start SimpleAggregateFunction(min, DateTime64(6, 'UTC')),
  last_start SimpleAggregateFunction(max, DateTime64(6, 'UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY (tenant_id, trace_id)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW trace_spans_of_runs TO trace_spans AS
SELECT tenant_id, trace_id, min(start_time) AS first_start, max(start_time) AS last_start
FROM runs
GROUP BY tenant_id, trace_id;
