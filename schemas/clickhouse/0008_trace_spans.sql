-- Between which start times the runs of a trace lie: reading a trace then needs no more of `runs` than that. Minimum and maximum are the
-- same in any order of arrival, and repeats change neither.
CREATE TABLE IF NOT EXISTS trace_spans (
  tenant_id UUID,
  trace_id UUID,
  first_start SimpleAggregateFunction(min, DateTime64(6, 'UTC')),
  last_start SimpleAggregateFunction(max, DateTime64(6, 'UTC'))
)
ENGINE = AggregatingMergeTree
ORDER BY (tenant_id, trace_id)
SETTINGS index_granularity = 256, non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS trace_spans_of_runs TO trace_spans AS
SELECT tenant_id, trace_id, min(start_time) AS first_start, max(start_time) AS last_start
FROM runs
GROUP BY tenant_id, trace_id;

-- What was stored before.
INSERT INTO trace_spans
SELECT tenant_id, trace_id, min(start_time), max(start_time)
FROM runs
GROUP BY tenant_id, trace_id;
