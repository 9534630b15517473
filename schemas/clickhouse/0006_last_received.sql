-- When the newest event of a run was accepted: replaying an older one would take back what came since. Each row of an insert
-- is one event, whose time stands in first_received_at; merging keeps the greatest. Older rows know the first event only.
ALTER TABLE runs ADD COLUMN IF NOT EXISTS
  last_received_at SimpleAggregateFunction(max, DateTime64(6, 'UTC')) DEFAULT first_received_at AFTER first_received_at;
