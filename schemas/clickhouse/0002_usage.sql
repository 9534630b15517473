-- Traces per hour: one row per workspace, hour and dimension, with all ids in a list. An hour of a workspace has four
-- rows for any number of projects, users and keys, so a report reads few rows. Each trace is counted once in each
-- dimension, so all four rows have the same sum. A roll-up run counts a dirty hour again and replaces all its rows; the
-- highest `roll_up` wins. Queries must use FINAL. In a cluster each shard counts the traces that it stores, so an hour has
-- four rows for each shard; all rows of a workspace are on one shard.
CREATE TABLE usage_hourly (
  tenant_id UUID,
  dimension Enum8('workspace' = 1, 'project' = 2, 'user' = 3, 'api_key' = 4),
  hour DateTime('UTC'),
  -- Index of the shard whose traces are counted.
  shard UInt16,
  -- Ids of workspaces, projects, users or keys, without duplicates.
  ids Array(UUID),
  -- Number of traces of each of `ids`, in the same order; never zero. An hour that lost all its traces has two empty
  -- lists.
  traces Array(UInt64),
  roll_up UInt64
)
ENGINE = ReplacingMergeTree(roll_up)
SHARD BY (tenant_id)
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant_id, dimension, hour, shard)
SETTINGS index_granularity = 256;

-- Sums of the hours of a UTC day, for the whole days of a report.
CREATE TABLE usage_daily (
  tenant_id UUID,
  dimension Enum8('workspace' = 1, 'project' = 2, 'user' = 3, 'api_key' = 4),
  day Date,
  ids Array(UUID),
  traces Array(UInt64),
  roll_up UInt64
)
ENGINE = ReplacingMergeTree(roll_up)
SHARD BY (tenant_id)
PARTITION BY toYear(day)
ORDER BY (tenant_id, dimension, day)
SETTINGS index_granularity = 64;
