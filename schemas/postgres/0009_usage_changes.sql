-- The pass of the usage roll-up that last changed a day of a workspace, in the transaction that ends the pass: whoever keeps
-- counts of it in memory sees here whether they still hold. A day that has no row never changed since this table exists.
CREATE TABLE usage_changes (
  workspace_id uuid NOT NULL,
  -- UTC.
  day date NOT NULL,
  pass bigint NOT NULL,
  PRIMARY KEY (workspace_id, day)
);
