-- Offsets whose events were parked, kept for a while after the events joined their traces, so that none is parked twice.
-- `salt` is that of a replay, in which older events are stored anew; else empty.
CREATE TABLE deferred_offsets (
  topic text NOT NULL,
  partition integer NOT NULL,
  log_offset bigint NOT NULL,
  salt text NOT NULL,
  parked_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (topic, partition, log_offset, salt)
);
CREATE INDEX deferred_offsets_by_time ON deferred_offsets (parked_at);
