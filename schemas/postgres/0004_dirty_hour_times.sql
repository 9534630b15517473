-- When an hour was noted, so that the delay of the usage roll-up can be told. Notes that are there already count from now.
ALTER TABLE usage_dirty_hours ADD COLUMN marked_at timestamptz NOT NULL DEFAULT now();
