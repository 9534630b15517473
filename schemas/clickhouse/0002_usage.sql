-- Traces per hour, by each dimension apart: every trace counts once in each of the four, so all of them sum to the same
-- total, and a query reads only the rows of its own dimension, however many combinations of project, user and key there are.
-- Every roll_up of the roll-up counts a touched hour again, whole; the highest roll_up wins, zero rows included.
-- Always read with FINAL.
CREATE TABLE usage_hourly (
  tenant_id UUID,
  dimension Enum8('workspace' = 1, 'project' = 2, 'user' = 3, 'api_key' = 4),
  hour DateTime('UTC'),
  -- The workspace, project, user or key.
  id UUID,
  traces UInt64,
  roll_up UInt64
)
ENGINE = ReplacingMergeTree(roll_up)
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant_id, dimension, hour, id)
SETTINGS index_granularity = 1024;
