-- When an organisation was deleted. The row stays, because usage keeps its name; `purged_at` of its workspaces says what is done.
ALTER TABLE organizations ADD COLUMN IF NOT EXISTS deleted_at timestamptz;
-- The first organisation is that of the operator.
CREATE INDEX IF NOT EXISTS organizations_by_age ON organizations (created_at, id);
