-- Versions of the events of the last day, by a digest of what the client sent. The sink gives an event that repeats a stored
-- one the version of that one (`pipelines/ingest/sink/event-versions.ts`). Of a digest the highest version wins. Partitions
-- are days, so that an expired day is dropped whole.
CREATE TABLE event_versions (
  tenant_id UUID,
  -- The run, or the feedback.
  id UUID,
  digest UInt64,
  version UInt64,
  received_at DateTime64(6, 'UTC'),
  inserted_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
SHARD BY (tenant_id, id)
PARTITION BY toDate(inserted_at)
ORDER BY (tenant_id, id, digest)
TTL inserted_at + INTERVAL 1 DAY DELETE
SETTINGS index_granularity = 1024, min_compress_block_size = 16384, max_compress_block_size = 65536, ttl_only_drop_parts = 1;
