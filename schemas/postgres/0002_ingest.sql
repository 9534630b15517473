-- The insert batch that the sink is about to insert, with the in-process log. The row is written before the INSERT
-- and deleted in the transaction that marks the hours of the batch dirty. A row that is found at the start belongs to
-- an INSERT that may have happened.
CREATE TABLE in_flight_inserts (
  topic text NOT NULL,
  partition integer NOT NULL,
  token text NOT NULL,
  batch jsonb NOT NULL,
  written_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, partition, token)
);

-- Events that name no project and whose trace is not known yet. Any event of the trace releases them.
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
  deferred_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (topic, partition, log_offset)
);
CREATE INDEX deferred_events_by_trace ON deferred_events (tenant_id, trace_id);

-- Offsets of deferred events. Kept for a while after the events were released, so that none is deferred twice.
CREATE TABLE deferred_offsets (
  topic text NOT NULL,
  partition integer NOT NULL,
  log_offset bigint NOT NULL,
  -- Token salt of a replay, which inserts older events again; otherwise empty.
  salt text NOT NULL,
  deferred_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, partition, log_offset, salt)
);
CREATE INDEX deferred_offsets_by_time ON deferred_offsets (deferred_at);

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
  marked_at timestamptz NOT NULL DEFAULT now()
);
-- Numbers of roll-up runs.
CREATE SEQUENCE usage_roll_up;
