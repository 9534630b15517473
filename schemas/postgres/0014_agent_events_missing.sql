-- Of a run that ended while the log took no events for too long: its stream has a hole before the end, which readers are told.
ALTER TABLE agents.runs ADD COLUMN events_missing boolean NOT NULL DEFAULT false;
