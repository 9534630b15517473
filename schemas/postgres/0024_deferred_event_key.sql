-- After a topic was created again, another event has the same position. Its version, which contains the time of acceptance,
-- differs.
CREATE UNIQUE INDEX IF NOT EXISTS deferred_events_by_position ON deferred_events (topic, partition, log_offset, version);
ALTER TABLE deferred_events DROP CONSTRAINT IF EXISTS deferred_events_topic_partition_log_offset_key;
