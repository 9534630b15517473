-- The insert batch that a consumer of the in-process log is about to insert. Written before the insert, deleted in the transaction
-- that notes its hours. A row that is found at start belongs to an insert that may have happened.
CREATE TABLE in_flight_inserts (
  topic text NOT NULL,
  partition integer NOT NULL,
  token text NOT NULL,
  batch jsonb NOT NULL,
  written_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, partition, token)
);

-- Events that name no project and whose trace is not known yet. They join when an event of the trace passes.
CREATE TABLE deferred_events (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic text NOT NULL,
  partition integer NOT NULL,
  log_offset bigint NOT NULL,
  tenant_id uuid NOT NULL,
  trace_id uuid NOT NULL,
  key bytea NOT NULL,
  value bytea NOT NULL,
  headers jsonb NOT NULL,
  parked_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (topic, partition, log_offset)
);
CREATE INDEX deferred_events_by_trace ON deferred_events (tenant_id, trace_id);

-- The dead-letter topic of the in-process log: original bytes and headers, and why.
CREATE TABLE dead_letters (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic text NOT NULL,
  partition integer NOT NULL,
  log_offset bigint NOT NULL,
  key bytea NOT NULL,
  value bytea NOT NULL,
  headers jsonb NOT NULL,
  reason text NOT NULL,
  step text NOT NULL,
  dead_at timestamptz NOT NULL DEFAULT now(),
  replayed_at timestamptz,
  UNIQUE (topic, partition, log_offset)
);

-- Hours whose traces have to be counted again. The roll-up deletes only the numbers that it read.
CREATE TABLE usage_dirty_hours (
  sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id uuid NOT NULL,
  hour timestamptz NOT NULL
);
CREATE SEQUENCE usage_roll_up;
