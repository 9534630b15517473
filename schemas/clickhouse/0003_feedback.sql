-- One complete row per feedback event; of an id, the event with the highest version wins (`LogRecord.version`). JSON columns hold the text as received.
CREATE TABLE feedback (
  version UInt64,
  -- As in `runs`.
  trace_tier UInt8 DEFAULT 2,
  expires_at DateTime('UTC') DEFAULT toDateTime(4102444800, 'UTC'),
  tenant_id UUID,
  run_id UUID,
  id UUID,
  received_at DateTime64(6, 'UTC'),
  trace_id Nullable(UUID),
  session_id Nullable(UUID),
  start_time Nullable(DateTime64(6, 'UTC')),
  key LowCardinality(String),
  score Nullable(String),
  value Nullable(String) CODEC(ZSTD(1)),
  comment Nullable(String) CODEC(ZSTD(1)),
  correction Nullable(String) CODEC(ZSTD(1)),
  source_type LowCardinality(String),
  feedback_source Nullable(String) CODEC(ZSTD(1)),
  feedback_group_id Nullable(UUID),
  comparative_experiment_id Nullable(UUID),
  extra Nullable(String) CODEC(ZSTD(1)),
  error Nullable(Bool),
  user_id UUID,
  created_at DateTime64(6, 'UTC'),
  modified_at DateTime64(6, 'UTC'),
  deleted_at Nullable(DateTime64(6, 'UTC')),
  -- Whether it makes its trace longlived; null means that it does.
  keeps_trace Nullable(Bool),
  INDEX by_id id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = ReplacingMergeTree(version)
SHARD BY (tenant_id, run_id)
ORDER BY (tenant_id, run_id, id)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 1024, merge_with_ttl_timeout = 86400;

-- One complete row per attachment event; of a run and name, the event with the highest version wins. Partitions are
-- weeks of expiry, so that an expired week is dropped whole.
CREATE TABLE attachments (
  version UInt64,
  -- As in `runs`.
  trace_tier UInt8 DEFAULT 2,
  expires_at DateTime('UTC') DEFAULT toDateTime(4102444800, 'UTC'),
  tenant_id UUID,
  run_id UUID,
  name String,
  received_at DateTime64(6, 'UTC'),
  mime_type String,
  content String CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(version)
SHARD BY (tenant_id, run_id)
PARTITION BY toMonday(expires_at)
ORDER BY (tenant_id, run_id, name)
TTL expires_at + INTERVAL 7 DAY DELETE
SETTINGS index_granularity = 64, ttl_only_drop_parts = 1;
