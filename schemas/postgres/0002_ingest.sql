-- Inserts of the sink with the in-process log, which cannot redeliver events. A row is written before the INSERT and
-- deleted in the transaction that marks its hours dirty. A row that is found at the start belongs to an INSERT that may
-- have happened.
CREATE TABLE in_flight_inserts (
  id uuid PRIMARY KEY,
  -- Objects with `tenantId` and `hourSeconds`.
  hours jsonb NOT NULL,
  written_at timestamptz NOT NULL DEFAULT now()
);

-- Events that name no project and whose trace is not known yet. Any event of the trace releases them.
CREATE TABLE deferred_events (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic text NOT NULL,
  partition integer NOT NULL,
  log_offset bigint NOT NULL,
  -- Unsigned, as a decimal.
  version numeric(20) NOT NULL,
  tenant_id uuid NOT NULL,
  trace_id uuid NOT NULL,
  key bytea NOT NULL,
  value bytea NOT NULL,
  headers jsonb NOT NULL,
  deferred_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (topic, partition, log_offset)
);
CREATE INDEX deferred_events_by_trace ON deferred_events (tenant_id, trace_id);

-- Traces whose events were stored under several trace locations. Every sink moves its events of them.
CREATE TABLE contested_traces (
  tenant_id uuid NOT NULL,
  trace_id uuid NOT NULL,
  noticed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (tenant_id, trace_id)
);

-- Traces to keep or to delete. A job handles each row twice, an hour apart, because some events of the trace may still
-- have been on their way the first time, and then deletes the row.
CREATE TABLE trace_changes (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('keep', 'delete')),
  tenant_id uuid NOT NULL,
  -- A run of the trace to keep, which got feedback; otherwise null.
  run_id uuid,
  -- Project of the traces that were requested, and their ids or the metadata of one of their runs.
  session_id uuid,
  trace_ids uuid[],
  metadata text,
  requested_at timestamptz NOT NULL DEFAULT now(),
  due_at timestamptz NOT NULL DEFAULT now(),
  is_second boolean NOT NULL DEFAULT false
);
CREATE INDEX trace_changes_by_due ON trace_changes (due_at);

-- The dead-letter queue of the in-process log: original bytes and headers, and the reason.
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

-- Dead-letter records that were published to their topics again. The record itself stays, in `dead_letters` or in a
-- topic of Kafka.
CREATE TABLE dead_letter_replays (
  dead_letter_id text PRIMARY KEY,
  claimed_at timestamptz NOT NULL DEFAULT now(),
  -- Null between the claim and the moment when the log has accepted the event.
  replayed_at timestamptz
);

-- Hours whose traces must be counted again. The usage roll-up deletes only the rows that it read.
CREATE TABLE usage_dirty_hours (
  sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id uuid NOT NULL,
  hour timestamptz NOT NULL,
  -- Gives the delay of the usage roll-up.
  marked_at timestamptz NOT NULL DEFAULT now(),
  -- Roll-up runs lock the workspaces of a group together.
  tenant_group integer NOT NULL GENERATED ALWAYS AS (get_byte(uuid_send(tenant_id), 15) % 16) STORED
);
-- Numbers of roll-up runs.
CREATE SEQUENCE usage_roll_up;
