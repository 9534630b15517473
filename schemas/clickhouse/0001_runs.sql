-- Run events as the sink inserts them; the views below store them. Fields that a post and a patch can both set have two
-- columns. JSON columns hold the text as received, byte for byte. Lists are JSON text, not arrays.
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
  first_received_at DateTime64(6, 'UTC'),
  user_id UUID,
  key_id UUID,
  dotted_order Nullable(String),
  deleted_at Nullable(DateTime64(6, 'UTC')),
  post_name Nullable(String),
  post_run_type LowCardinality(Nullable(String)),
  post_started_at Nullable(DateTime64(6, 'UTC')),
  post_ended_at Nullable(DateTime64(6, 'UTC')),
  post_parent_run_id Nullable(UUID),
  post_reference_example_id Nullable(UUID),
  post_tags Nullable(String),
  post_inputs Nullable(String),
  post_outputs Nullable(String),
  post_error Nullable(String),
  post_events Nullable(String),
  post_extra Nullable(String),
  post_serialized Nullable(String),
  post_prompt_tokens Nullable(Int64),
  post_completion_tokens Nullable(Int64),
  post_total_tokens Nullable(Int64),
  post_prompt_cost Nullable(String),
  post_completion_cost Nullable(String),
  post_total_cost Nullable(String),
  post_usage_details Nullable(String),
  post_first_token_time Nullable(DateTime64(6, 'UTC')),
  post_bytes Nullable(Int64),
  patch_name Nullable(String),
  patch_run_type LowCardinality(Nullable(String)),
  patch_started_at Nullable(DateTime64(6, 'UTC')),
  patch_ended_at Nullable(DateTime64(6, 'UTC')),
  patch_parent_run_id Nullable(UUID),
  patch_reference_example_id Nullable(UUID),
  patch_tags Nullable(String),
  patch_inputs Nullable(String),
  patch_outputs Nullable(String),
  patch_error Nullable(String),
  patch_events Nullable(String),
  patch_extra Nullable(String),
  patch_serialized Nullable(String),
  patch_prompt_tokens Nullable(Int64),
  patch_completion_tokens Nullable(Int64),
  patch_total_tokens Nullable(Int64),
  patch_prompt_cost Nullable(String),
  patch_completion_cost Nullable(String),
  patch_total_cost Nullable(String),
  patch_usage_details Nullable(String),
  patch_first_token_time Nullable(DateTime64(6, 'UTC')),
  patch_bytes Nullable(Int64)
)
ENGINE = Null
SHARD BY (tenant_id, trace_id);

-- Runs: one row per run once merged. Every column is merged by a minimum or a maximum, so that neither the order nor the
-- number of inserts of an event can change a value: a value that several events set is that of the highest version, and
-- a post and its patches have separate columns, of which reads take coalesce(patch_x, post_x). The key times come from
-- dotted_order and never change, so a run is never in two partitions.
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
  versioned_dotted_order SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  -- Once set, it stays set: after a lightweight DELETE a late patch would restore half a run.
  deleted_at SimpleAggregateFunction(max, Nullable(DateTime64(6, 'UTC'))),
  versioned_post_name SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_run_type SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_started_at SimpleAggregateFunction(max, Tuple(UInt64, Nullable(DateTime64(6, 'UTC')))),
  versioned_post_ended_at SimpleAggregateFunction(max, Tuple(UInt64, Nullable(DateTime64(6, 'UTC')))),
  versioned_post_parent_run_id SimpleAggregateFunction(max, Tuple(UInt64, Nullable(UUID))),
  versioned_post_reference_example_id SimpleAggregateFunction(max, Tuple(UInt64, Nullable(UUID))),
  versioned_post_tags SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_inputs SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_outputs SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_error SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_events SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_extra SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_serialized SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_prompt_tokens SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  versioned_post_completion_tokens SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  versioned_post_total_tokens SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  versioned_post_prompt_cost SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))),
  versioned_post_completion_cost SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))),
  versioned_post_total_cost SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))),
  versioned_post_usage_details SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_post_first_token_time SimpleAggregateFunction(max, Tuple(UInt64, Nullable(DateTime64(6, 'UTC')))),
  versioned_post_bytes SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  versioned_patch_name SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_run_type SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_started_at SimpleAggregateFunction(max, Tuple(UInt64, Nullable(DateTime64(6, 'UTC')))),
  versioned_patch_ended_at SimpleAggregateFunction(max, Tuple(UInt64, Nullable(DateTime64(6, 'UTC')))),
  versioned_patch_parent_run_id SimpleAggregateFunction(max, Tuple(UInt64, Nullable(UUID))),
  versioned_patch_reference_example_id SimpleAggregateFunction(max, Tuple(UInt64, Nullable(UUID))),
  versioned_patch_tags SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_inputs SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_outputs SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_error SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_events SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_extra SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_serialized SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_prompt_tokens SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  versioned_patch_completion_tokens SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  versioned_patch_total_tokens SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  versioned_patch_prompt_cost SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))),
  versioned_patch_completion_cost SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))),
  versioned_patch_total_cost SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))),
  versioned_patch_usage_details SimpleAggregateFunction(max, Tuple(UInt64, Nullable(String))) CODEC(ZSTD(1)),
  versioned_patch_first_token_time SimpleAggregateFunction(max, Tuple(UInt64, Nullable(DateTime64(6, 'UTC')))),
  versioned_patch_bytes SimpleAggregateFunction(max, Tuple(UInt64, Nullable(Int64))),
  trace_time DateTime64(6, 'UTC') ALIAS ranked_trace_time.2,
  dotted_order Nullable(String) ALIAS versioned_dotted_order.2,
  post_name Nullable(String) ALIAS versioned_post_name.2,
  post_run_type Nullable(String) ALIAS versioned_post_run_type.2,
  post_started_at Nullable(DateTime64(6, 'UTC')) ALIAS versioned_post_started_at.2,
  post_ended_at Nullable(DateTime64(6, 'UTC')) ALIAS versioned_post_ended_at.2,
  post_parent_run_id Nullable(UUID) ALIAS versioned_post_parent_run_id.2,
  post_reference_example_id Nullable(UUID) ALIAS versioned_post_reference_example_id.2,
  post_tags Nullable(String) ALIAS versioned_post_tags.2,
  post_inputs Nullable(String) ALIAS versioned_post_inputs.2,
  post_outputs Nullable(String) ALIAS versioned_post_outputs.2,
  post_error Nullable(String) ALIAS versioned_post_error.2,
  post_events Nullable(String) ALIAS versioned_post_events.2,
  post_extra Nullable(String) ALIAS versioned_post_extra.2,
  post_serialized Nullable(String) ALIAS versioned_post_serialized.2,
  post_prompt_tokens Nullable(Int64) ALIAS versioned_post_prompt_tokens.2,
  post_completion_tokens Nullable(Int64) ALIAS versioned_post_completion_tokens.2,
  post_total_tokens Nullable(Int64) ALIAS versioned_post_total_tokens.2,
  post_prompt_cost Nullable(String) ALIAS versioned_post_prompt_cost.2,
  post_completion_cost Nullable(String) ALIAS versioned_post_completion_cost.2,
  post_total_cost Nullable(String) ALIAS versioned_post_total_cost.2,
  post_usage_details Nullable(String) ALIAS versioned_post_usage_details.2,
  post_first_token_time Nullable(DateTime64(6, 'UTC')) ALIAS versioned_post_first_token_time.2,
  post_bytes Nullable(Int64) ALIAS versioned_post_bytes.2,
  patch_name Nullable(String) ALIAS versioned_patch_name.2,
  patch_run_type Nullable(String) ALIAS versioned_patch_run_type.2,
  patch_started_at Nullable(DateTime64(6, 'UTC')) ALIAS versioned_patch_started_at.2,
  patch_ended_at Nullable(DateTime64(6, 'UTC')) ALIAS versioned_patch_ended_at.2,
  patch_parent_run_id Nullable(UUID) ALIAS versioned_patch_parent_run_id.2,
  patch_reference_example_id Nullable(UUID) ALIAS versioned_patch_reference_example_id.2,
  patch_tags Nullable(String) ALIAS versioned_patch_tags.2,
  patch_inputs Nullable(String) ALIAS versioned_patch_inputs.2,
  patch_outputs Nullable(String) ALIAS versioned_patch_outputs.2,
  patch_error Nullable(String) ALIAS versioned_patch_error.2,
  patch_events Nullable(String) ALIAS versioned_patch_events.2,
  patch_extra Nullable(String) ALIAS versioned_patch_extra.2,
  patch_serialized Nullable(String) ALIAS versioned_patch_serialized.2,
  patch_prompt_tokens Nullable(Int64) ALIAS versioned_patch_prompt_tokens.2,
  patch_completion_tokens Nullable(Int64) ALIAS versioned_patch_completion_tokens.2,
  patch_total_tokens Nullable(Int64) ALIAS versioned_patch_total_tokens.2,
  patch_prompt_cost Nullable(String) ALIAS versioned_patch_prompt_cost.2,
  patch_completion_cost Nullable(String) ALIAS versioned_patch_completion_cost.2,
  patch_total_cost Nullable(String) ALIAS versioned_patch_total_cost.2,
  patch_usage_details Nullable(String) ALIAS versioned_patch_usage_details.2,
  patch_first_token_time Nullable(DateTime64(6, 'UTC')) ALIAS versioned_patch_first_token_time.2,
  patch_bytes Nullable(Int64) ALIAS versioned_patch_bytes.2,
  INDEX by_trace trace_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, trace_id)
PARTITION BY toMonday(start_time)
ORDER BY (tenant_id, session_id, start_time, trace_id, id)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS merge_with_ttl_timeout = 86400;

-- A null has version 0, so that it never replaces a value.
CREATE MATERIALIZED VIEW runs_of_events TO runs AS
SELECT
  tenant_id, session_id, start_time, trace_id, id, (toUInt64(0), trace_time) AS ranked_trace_time, location_version,
  first_received_at, trace_tier, expires_at, (first_received_at, user_id, key_id) AS sender,
  (if(isNull(dotted_order), 0, version), dotted_order) AS versioned_dotted_order,
  deleted_at,
  (if(isNull(post_name), 0, version), post_name) AS versioned_post_name,
  (if(isNull(post_run_type), 0, version), post_run_type) AS versioned_post_run_type,
  (if(isNull(post_started_at), 0, version), post_started_at) AS versioned_post_started_at,
  (if(isNull(post_ended_at), 0, version), post_ended_at) AS versioned_post_ended_at,
  (if(isNull(post_parent_run_id), 0, version), post_parent_run_id) AS versioned_post_parent_run_id,
  (if(isNull(post_reference_example_id), 0, version), post_reference_example_id) AS versioned_post_reference_example_id,
  (if(isNull(post_tags), 0, version), post_tags) AS versioned_post_tags,
  (if(isNull(post_inputs), 0, version), post_inputs) AS versioned_post_inputs,
  (if(isNull(post_outputs), 0, version), post_outputs) AS versioned_post_outputs,
  (if(isNull(post_error), 0, version), post_error) AS versioned_post_error,
  (if(isNull(post_events), 0, version), post_events) AS versioned_post_events,
  (if(isNull(post_extra), 0, version), post_extra) AS versioned_post_extra,
  (if(isNull(post_serialized), 0, version), post_serialized) AS versioned_post_serialized,
  (if(isNull(post_prompt_tokens), 0, version), post_prompt_tokens) AS versioned_post_prompt_tokens,
  (if(isNull(post_completion_tokens), 0, version), post_completion_tokens) AS versioned_post_completion_tokens,
  (if(isNull(post_total_tokens), 0, version), post_total_tokens) AS versioned_post_total_tokens,
  (if(isNull(post_prompt_cost), 0, version), post_prompt_cost) AS versioned_post_prompt_cost,
  (if(isNull(post_completion_cost), 0, version), post_completion_cost) AS versioned_post_completion_cost,
  (if(isNull(post_total_cost), 0, version), post_total_cost) AS versioned_post_total_cost,
  (if(isNull(post_usage_details), 0, version), post_usage_details) AS versioned_post_usage_details,
  (if(isNull(post_first_token_time), 0, version), post_first_token_time) AS versioned_post_first_token_time,
  (if(isNull(post_bytes), 0, version), post_bytes) AS versioned_post_bytes,
  (if(isNull(patch_name), 0, version), patch_name) AS versioned_patch_name,
  (if(isNull(patch_run_type), 0, version), patch_run_type) AS versioned_patch_run_type,
  (if(isNull(patch_started_at), 0, version), patch_started_at) AS versioned_patch_started_at,
  (if(isNull(patch_ended_at), 0, version), patch_ended_at) AS versioned_patch_ended_at,
  (if(isNull(patch_parent_run_id), 0, version), patch_parent_run_id) AS versioned_patch_parent_run_id,
  (if(isNull(patch_reference_example_id), 0, version), patch_reference_example_id) AS versioned_patch_reference_example_id,
  (if(isNull(patch_tags), 0, version), patch_tags) AS versioned_patch_tags,
  (if(isNull(patch_inputs), 0, version), patch_inputs) AS versioned_patch_inputs,
  (if(isNull(patch_outputs), 0, version), patch_outputs) AS versioned_patch_outputs,
  (if(isNull(patch_error), 0, version), patch_error) AS versioned_patch_error,
  (if(isNull(patch_events), 0, version), patch_events) AS versioned_patch_events,
  (if(isNull(patch_extra), 0, version), patch_extra) AS versioned_patch_extra,
  (if(isNull(patch_serialized), 0, version), patch_serialized) AS versioned_patch_serialized,
  (if(isNull(patch_prompt_tokens), 0, version), patch_prompt_tokens) AS versioned_patch_prompt_tokens,
  (if(isNull(patch_completion_tokens), 0, version), patch_completion_tokens) AS versioned_patch_completion_tokens,
  (if(isNull(patch_total_tokens), 0, version), patch_total_tokens) AS versioned_patch_total_tokens,
  (if(isNull(patch_prompt_cost), 0, version), patch_prompt_cost) AS versioned_patch_prompt_cost,
  (if(isNull(patch_completion_cost), 0, version), patch_completion_cost) AS versioned_patch_completion_cost,
  (if(isNull(patch_total_cost), 0, version), patch_total_cost) AS versioned_patch_total_cost,
  (if(isNull(patch_usage_details), 0, version), patch_usage_details) AS versioned_patch_usage_details,
  (if(isNull(patch_first_token_time), 0, version), patch_first_token_time) AS versioned_patch_first_token_time,
  (if(isNull(patch_bytes), 0, version), patch_bytes) AS versioned_patch_bytes
FROM run_events;

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

CREATE MATERIALIZED VIEW traces_of_events TO traces AS
SELECT tenant_id, toStartOfHour(trace_time) AS hour, trace_id, min((first_received_at, id, session_id, user_id, key_id)) AS pick
FROM run_events
GROUP BY tenant_id, hour, trace_id;

-- The key of a run by its id alone, of its event that was accepted first.
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
SETTINGS index_granularity = 256, merge_with_ttl_timeout = 86400;

CREATE MATERIALIZED VIEW run_locator_of_events TO run_locator AS
SELECT tenant_id, id, min((first_received_at, start_time, trace_id, trace_time, session_id)) AS pick,
  max(event.trace_tier) AS trace_tier, max(event.expires_at) AS expires_at
FROM run_events AS event
GROUP BY tenant_id, id;

-- Trace locations: the projects and times that the events of a trace are stored under, normally one. Of several the one
-- with the lowest version wins, and the sink moves the events there.
CREATE TABLE trace_locations (
  tenant_id UUID,
  trace_id UUID,
  session_id UUID,
  trace_time DateTime64(6, 'UTC'),
  version SimpleAggregateFunction(min, UInt64),
  trace_tier SimpleAggregateFunction(max, UInt8),
  expires_at SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, trace_id)
ORDER BY (tenant_id, trace_id, session_id, trace_time)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 256, merge_with_ttl_timeout = 86400;

CREATE MATERIALIZED VIEW trace_locations_of_events TO trace_locations AS
SELECT tenant_id, trace_id, session_id, trace_time, min(location_version) AS version,
  max(event.trace_tier) AS trace_tier, max(event.expires_at) AS expires_at
FROM run_events AS event
GROUP BY tenant_id, trace_id, session_id, trace_time;

-- First and last start time of the runs of a trace, so that reading a trace reads only this range of `runs`. Neither
-- the order of arrival nor duplicates change a minimum or maximum.
CREATE TABLE trace_spans (
  tenant_id UUID,
  trace_id UUID,
  first_start SimpleAggregateFunction(min, DateTime64(6, 'UTC')),
  last_start SimpleAggregateFunction(max, DateTime64(6, 'UTC')),
  trace_tier SimpleAggregateFunction(max, UInt8),
  expires_at SimpleAggregateFunction(max, DateTime('UTC'))
)
ENGINE = AggregatingMergeTree
SHARD BY (tenant_id, trace_id)
ORDER BY (tenant_id, trace_id)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 256, merge_with_ttl_timeout = 86400;

CREATE MATERIALIZED VIEW trace_spans_of_events TO trace_spans AS
SELECT tenant_id, trace_id, min(start_time) AS first_start, max(start_time) AS last_start,
  max(event.trace_tier) AS trace_tier, max(event.expires_at) AS expires_at
FROM run_events AS event
GROUP BY tenant_id, trace_id;

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
SETTINGS index_granularity = 256, merge_with_ttl_timeout = 86400;
