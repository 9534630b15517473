-- Until then one process publishes the late end of this run; the others leave it alone. Null: no process has claimed it.
ALTER TABLE agents.runs ADD COLUMN end_claimed_until timestamptz;
