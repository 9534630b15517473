-- The sink claims the deferred events of a trace in slices, in the order of their versions.
CREATE INDEX IF NOT EXISTS deferred_events_by_version ON deferred_events (tenant_id, trace_id, version);
DROP INDEX IF EXISTS deferred_events_by_trace;
