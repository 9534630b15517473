-- Days that longlived traces of a project are kept, if fewer than `RUNLAKE_RETENTION_LONGLIVED_DAYS`. Null: as long.
ALTER TABLE projects ADD COLUMN IF NOT EXISTS longlived_ttl_days integer;
