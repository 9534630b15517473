-- Events that runs of the agent server streamed and that are kept for those who join later.
-- An event is named by run, attempt and number. Of its repeats the first in the log wins, because what comes after the first
-- event of a higher attempt does not count, and a repeat must not move an event to there: hence the version that falls.
-- Partitions are days of expiry, so that a day that is over is dropped whole.
CREATE TABLE stream_events (
  organization_id UUID,
  thread_id UUID,
  run_id UUID,
  attempt Int64,
  seq Int64,
  thread_seq Int64 CODEC(Delta, ZSTD(1)),
  log_partition Decimal(18, 0) CODEC(ZSTD(1)),
  log_offset Decimal(18, 0) CODEC(Delta, ZSTD(1)),
  kept Bool,
  expires_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
  created_at DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
  mode LowCardinality(String),
  event LowCardinality(String),
  -- Parts joined with a bar, which no name of a graph's node may hold.
  namespace String CODEC(ZSTD(1)),
  data String CODEC(ZSTD(1)),
  is_end Bool,
  -- What a page weighs is known without reading it.
  data_bytes UInt64 MATERIALIZED length(data),
  falling_version UInt64 MATERIALIZED toUInt64(1000000000000000000 - log_offset),
  INDEX by_thread_seq thread_seq TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(falling_version)
PARTITION BY toDate(expires_at)
ORDER BY (organization_id, thread_id, run_id, attempt, seq)
TTL toDateTime(expires_at) DELETE
SETTINGS index_granularity = 1024, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 10000;
