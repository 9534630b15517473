-- Events that graph runs streamed, stored for clients that join later. Run, attempt and number identify an event. The
-- duplicate that was accepted first wins, hence the decreasing version. Otherwise a duplicate could move an event
-- behind the first event of a later attempt, where it would be ignored. Partitions are days of expiry, so that an
-- expired day is dropped whole.
CREATE TABLE stream_events (
  version UInt64 CODEC(Delta, ZSTD(1)),
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
  -- Parts joined with a bar, which the name of a graph node must not contain.
  namespace String CODEC(ZSTD(1)),
  data String CODEC(ZSTD(1)),
  is_end Bool,
  -- Gives the size of a page without reading `data`.
  data_bytes UInt64 MATERIALIZED length(data),
  falling_version UInt64 MATERIALIZED bitNot(version),
  INDEX by_thread_seq thread_seq TYPE minmax GRANULARITY 1
)
ENGINE = ReplacingMergeTree(falling_version)
SHARD BY (organization_id, thread_id)
PARTITION BY toDate(expires_at)
ORDER BY (organization_id, thread_id, run_id, attempt, seq)
TTL toDateTime(expires_at) DELETE
SETTINGS index_granularity = 1024, ttl_only_drop_parts = 1;
