-- Where exports go. Credentials are sealed; `credentials_keys` names which were given. Without any, the storage client finds its own.
CREATE TABLE bulk_export_destinations (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  destination_type text NOT NULL,
  display_name text NOT NULL,
  config jsonb NOT NULL,
  sealed_credentials text,
  credentials_keys text[] NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz
);
CREATE INDEX bulk_export_destinations_by_workspace ON bulk_export_destinations (workspace_id, created_at, id)
  WHERE deleted_at IS NULL;

-- Exports: one-off ones, schedules (interval_hours, no end_time), and those that a schedule spawned (source_bulk_export_id).
CREATE TABLE bulk_exports (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  destination_id uuid NOT NULL REFERENCES bulk_export_destinations (id),
  project_id uuid NOT NULL REFERENCES projects (id),
  created_by_key_id uuid,
  start_time timestamptz NOT NULL,
  end_time timestamptz,
  interval_hours integer,
  format text NOT NULL,
  format_version text NOT NULL,
  compression text NOT NULL,
  export_fields text[],
  filter text,
  status text NOT NULL,
  -- Why it is where it is, in words for its owner.
  status_reason text,
  source_bulk_export_id uuid REFERENCES bulk_exports (id),
  -- Of a schedule: where the next interval begins.
  next_start_time timestamptz,
  -- End of the event log at creation; what lies before it has to be stored first. Null: nothing to wait for.
  log_position jsonb,
  -- Runs that were first received later are not in it.
  members_until timestamptz NOT NULL,
  -- When it left CREATED; its time limit counts from here.
  started_at timestamptz,
  -- When the manifest was written. Null at the end: its set is not whole.
  manifest_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz
);
CREATE INDEX bulk_exports_by_workspace ON bulk_exports (workspace_id, created_at, id);
CREATE INDEX bulk_exports_live ON bulk_exports (status, created_at) WHERE finished_at IS NULL;
CREATE INDEX bulk_exports_by_destination ON bulk_exports (destination_id) WHERE finished_at IS NULL;
-- A schedule spawns each interval once.
CREATE UNIQUE INDEX bulk_exports_by_source ON bulk_exports (source_bulk_export_id, start_time);

-- One UTC day of an export, clipped to its range. The row is the truth about the run; the queue only says: look at it.
CREATE TABLE bulk_export_runs (
  id uuid PRIMARY KEY,
  bulk_export_id uuid NOT NULL REFERENCES bulk_exports (id),
  workspace_id uuid NOT NULL,
  start_time timestamptz NOT NULL,
  end_time timestamptz NOT NULL,
  status text NOT NULL,
  -- Raised by each worker that takes the run up; only the bearer of the last one may write.
  fence bigint NOT NULL DEFAULT 0,
  -- A worker is on it, and shows so by moving this on. Past or null: nobody is, whatever else the row says.
  lease_until timestamptz,
  -- Begun, not yet over. Null while it waits.
  attempt_started_at timestamptz,
  -- A waiting run is not looked at before.
  next_attempt_at timestamptz NOT NULL DEFAULT now(),
  retry_number integer NOT NULL DEFAULT 0,
  -- retry_0, retry_1, …: what each attempt ended with.
  errors jsonb,
  -- Runs that belong to it, counted when it is first taken up.
  rows_total bigint,
  rows_written bigint NOT NULL DEFAULT 0,
  bytes_written bigint NOT NULL DEFAULT 0,
  -- Runs of its window that arrived after the export was made.
  late_runs bigint,
  -- Key of the last run that lies in a recorded file: {startTimeMicros, traceId, runId}.
  latest_cursor jsonb,
  -- The part that is about to be written, or was and is not recorded: {part, after, last, rows, bytes, path, uploadId}.
  pending_upload jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,
  UNIQUE (bulk_export_id, start_time)
);
CREATE INDEX bulk_export_runs_live ON bulk_export_runs (bulk_export_id, start_time) WHERE finished_at IS NULL;
-- Uploads of runs that are over, to be taken back.
CREATE INDEX bulk_export_runs_untidy ON bulk_export_runs (finished_at) WHERE finished_at IS NOT NULL AND pending_upload IS NOT NULL;

-- Files that are in the bucket, whole.
CREATE TABLE bulk_export_files (
  bulk_export_run_id uuid NOT NULL REFERENCES bulk_export_runs (id),
  part integer NOT NULL,
  -- As the bucket's owner sees it: bucket, prefix, and the rest.
  path text NOT NULL,
  rows bigint NOT NULL,
  bytes bigint NOT NULL,
  sha256 text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (bulk_export_run_id, part)
);
