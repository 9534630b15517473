-- Null until the data of a deleted workspace is deleted for the first time; then `deleted_at`; after the second purge, which follows an hour
-- after the deletion for events that were on their way, the time of that. Until then the deletion has to be queued (again).
ALTER TABLE workspaces ADD COLUMN IF NOT EXISTS purged_at timestamptz;
