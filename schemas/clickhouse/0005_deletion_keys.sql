-- Ids whose rows are being deleted from other tables. Every server of a cluster has its own copy (no SHARD BY), so that a
-- mutation reads no other server.
CREATE TABLE deletion_keys (
  deletion UUID,
  id UUID,
  expires_at DateTime('UTC') DEFAULT now() + INTERVAL 2 DAY
)
ENGINE = MergeTree
ORDER BY (deletion, id)
TTL expires_at DELETE;
