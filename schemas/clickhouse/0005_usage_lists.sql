-- Traces per hour and per day, one row a dimension with all its ids in a list: however many projects, users and keys there
-- are, an hour is four rows, a roll_up replaces a row whole, and a report reads few rows. Each trace counts once in each
-- dimension, so all four sum to the same total. Always read with FINAL: the highest roll_up wins.
CREATE TABLE usage_hourly_lists (
  tenant_id UUID,
  dimension Enum8('workspace' = 1, 'project' = 2, 'user' = 3, 'api_key' = 4),
  hour DateTime('UTC'),
  -- Workspaces, projects, users or keys; none twice.
  ids Array(UUID),
  -- Traces of each of `ids`, in their order. None is zero; an hour that lost all its traces has two empty lists.
  traces Array(UInt64),
  roll_up UInt64
)
ENGINE = ReplacingMergeTree(roll_up)
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant_id, dimension, hour)
SETTINGS index_granularity = 256;

INSERT INTO usage_hourly_lists
SELECT tenant_id, dimension, hour, groupArray(id), groupArray(traces), max(roll_up)
FROM usage_hourly FINAL
WHERE traces > 0
GROUP BY tenant_id, dimension, hour
SETTINGS max_partitions_per_insert_block = 0;

DROP TABLE IF EXISTS usage_hourly SYNC;

RENAME TABLE IF EXISTS usage_hourly_lists TO usage_hourly;

-- The sums of the hours of a UTC day, for the whole days of a report.
CREATE TABLE usage_daily (
  tenant_id UUID,
  dimension Enum8('workspace' = 1, 'project' = 2, 'user' = 3, 'api_key' = 4),
  day Date,
  ids Array(UUID),
  traces Array(UInt64),
  roll_up UInt64
)
ENGINE = ReplacingMergeTree(roll_up)
PARTITION BY toYear(day)
ORDER BY (tenant_id, dimension, day)
SETTINGS index_granularity = 64;

INSERT INTO usage_daily
SELECT tenant_id, dimension, day, counted.1, counted.2, roll_up
FROM (
  SELECT tenant_id, dimension, toDate(hour) AS day, sumMap(ids, traces) AS counted, max(roll_up) AS roll_up
  FROM usage_hourly FINAL
  GROUP BY tenant_id, dimension, day
)
SETTINGS max_partitions_per_insert_block = 0;
