-- The roll_up of the usage roll-up that last changed a day of a workspace, in the transaction that ends the roll_up: whoever keeps
-- counts of it in memory sees here whether they still hold. A day that has no row never changed since this table exists.
CREATE TABLE usage_changes (
  workspace_id uuid NOT NULL,
  -- UTC.
  day date NOT NULL,
  roll_up bigint NOT NULL,
  PRIMARY KEY (workspace_id, day)
);
