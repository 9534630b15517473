-- Traces per hour and dimension. Every pass counts a touched hour again, whole; the highest pass wins, zero rows included.
-- Always read with FINAL.
CREATE TABLE usage_hourly (
  tenant_id UUID,
  hour DateTime('UTC'),
  session_id UUID,
  user_id UUID,
  key_id UUID,
  traces UInt64,
  pass UInt64
)
ENGINE = ReplacingMergeTree(pass)
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant_id, hour, session_id, user_id, key_id);
