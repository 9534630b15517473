-- Events that the in-process log has accepted and its consumers have not stored yet
-- (`infra/event-log/in-process/log-table.ts`). Unused with Kafka.
CREATE TABLE event_log (
  -- Events of a topic that are deleted together.
  segment UInt64,
  topic LowCardinality(String),
  -- Empty for events of Runlake itself.
  organization_id LowCardinality(String),
  log_partition UInt16,
  log_offset UInt64,
  key String,
  -- A JSON object.
  headers String,
  value String
)
ENGINE = MergeTree
SHARD BY (topic, log_partition)
PARTITION BY segment
ORDER BY (topic, log_partition, log_offset)
SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1, old_parts_lifetime = 1;
