-- The facts of runs that statistics need: one row per project and hour, with the merged values of all runs that start in
-- the hour in lists. A roll-up run counts a dirty hour again and replaces its rows; the highest `roll_up` wins. An hour that
-- is not dirty has the rows of all its projects with runs. Queries must use FINAL. In a cluster each shard has a row with
-- the runs that it stores; all rows of a workspace are on one shard.
CREATE TABLE run_facts (
  tenant_id UUID,
  session_id UUID,
  hour DateTime('UTC'),
  -- Index of the shard whose runs are listed.
  shard UInt16,
  roll_up UInt64,
  -- Latest expiry of the runs of this row and of the rows that it replaced: a replaced row must not outlive it.
  expires_at DateTime('UTC'),
  -- Runs that are not deleted. Times are in microseconds since 1970, and latencies in microseconds.
  runs Nested (
    id UUID,
    trace_id UUID,
    is_root Bool,
    expires_at DateTime('UTC'),
    started Int64,
    latency Nullable(Int64),
    first_token Nullable(Int64),
    failed UInt8,
    shown_name LowCardinality(String),
    shown_type LowCardinality(String)
  ),
  -- The traces that start in this hour and have all their model calls in it, with the sums of their calls; no call counts
  -- that a call below it covers. Details are the pairs of all these calls.
  traces Nested (
    id UUID,
    expires_at DateTime('UTC'),
    prompt_tokens Nullable(Int64),
    completion_tokens Nullable(Int64),
    total_tokens Nullable(Int64),
    prompt_cost Nullable(Decimal(76, 20)),
    completion_cost Nullable(Decimal(76, 20)),
    total_cost Nullable(Decimal(76, 20)),
    details Array(Tuple(String, Decimal(76, 20)))
  ),
  -- The model calls of other traces. Of their ancestors those are listed that are model calls or start in another hour.
  calls Nested (
    id UUID,
    trace_id UUID,
    expires_at DateTime('UTC'),
    ancestors Array(UUID),
    -- Bit set of the six figures that are not null (`pipelines/runs/stats/figure-sums.ts`).
    stated UInt8,
    prompt_tokens Nullable(Int64),
    completion_tokens Nullable(Int64),
    total_tokens Nullable(Int64),
    prompt_cost Nullable(Decimal(76, 20)),
    completion_cost Nullable(Decimal(76, 20)),
    total_cost Nullable(Decimal(76, 20)),
    details Array(Tuple(String, Decimal(76, 20)))
  )
)
ENGINE = ReplacingMergeTree(roll_up)
SHARD BY (tenant_id)
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant_id, session_id, hour, shard)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 16, merge_with_ttl_timeout = 86400;
