-- The project and time of a trace: those of the event that was accepted first. A minimum, so that neither the order of inserts nor of merges
-- can change it; `trace_locator` kept the row that was inserted last. Read it by position (pick.3), as `traces`.
CREATE TABLE IF NOT EXISTS trace_locations (
  tenant_id UUID,
  trace_id UUID,
  pick SimpleAggregateFunction(min, Tuple(accepted_at DateTime64(6, 'UTC'), trace_time DateTime64(6, 'UTC'), session_id UUID))
)
ENGINE = AggregatingMergeTree
ORDER BY (tenant_id, trace_id)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS trace_locations_of_runs TO trace_locations AS
SELECT tenant_id, trace_id, min((first_received_at, trace_time, session_id)) AS pick
FROM runs
GROUP BY tenant_id, trace_id;

-- When they were accepted is not kept there: what is known stays first.
INSERT INTO trace_locations
SELECT tenant_id, trace_id, min((toDateTime64(0, 6, 'UTC'), trace_time, session_id)) AS pick
FROM trace_locator
GROUP BY tenant_id, trace_id;

DROP VIEW IF EXISTS trace_locator_of_runs;

DROP TABLE IF EXISTS trace_locator;
