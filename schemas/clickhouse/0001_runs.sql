-- Runs: one row a run once merged. A post and its patches meet on the key; each column keeps its last value that is not null.
-- The key times come from dotted_order and never change, so that a run can never lie in two partitions.
-- What both a post and a patch may set stands twice: reading takes coalesce(patch_x, post_x), so a late post undoes nothing.
-- JSON columns hold the text that came, byte for byte. Lists are JSON too: an empty array would overwrite, only NULL does not.
CREATE TABLE runs (
  tenant_id UUID,
  session_id UUID,
  start_time DateTime64(6, 'UTC'),
  trace_id UUID,
  id UUID,
  trace_time DateTime64(6, 'UTC'),
  first_received_at SimpleAggregateFunction(min, DateTime64(6, 'UTC')),
  user_id UUID,
  key_id UUID,
  dotted_order Nullable(String) CODEC(ZSTD(1)),
  -- Once set, wins: a lightweight DELETE would let a late patch bring half a run back.
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
-- The window counts table partitions, not insert batches: one batch may touch fifty.
SETTINGS non_replicated_deduplication_window = 10000;

-- The billing fact: one row a trace. `pick` is chosen by a minimum, which no order of arrival can upset.
-- Read it by position (pick.3): a subcolumn by name under FINAL reads unmerged rows.
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

-- Where a run lies, by its id alone.
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

-- The project and time that the first event of a trace fixed.
CREATE TABLE trace_locator (
  tenant_id UUID,
  trace_id UUID,
  trace_time DateTime64(6, 'UTC'),
  session_id UUID
)
ENGINE = ReplacingMergeTree
ORDER BY (tenant_id, trace_id)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW trace_locator_of_runs TO trace_locator AS
SELECT DISTINCT tenant_id, trace_id, trace_time, session_id FROM runs;
