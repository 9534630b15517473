-- When an hour was noted, so that the delay of the usage roll-up can be told. Notes that are there already count from now.
ALTER TABLE usage_notes ADD COLUMN noted_at timestamptz NOT NULL DEFAULT now();
