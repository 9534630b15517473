-- Destinations of exports. `sealed_credentials` contains the encrypted credentials, and `credentials_keys` the names of
-- the fields that were sent. Without credentials, the storage client uses its default credential chain.
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

-- One-off exports, schedules (interval_hours, no end_time), and exports that a schedule created
-- (source_bulk_export_id).
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
  -- Why the export has this status, as shown to its owner.
  status_reason text,
  source_bulk_export_id uuid REFERENCES bulk_exports (id),
  -- Start of the next interval of a schedule; null for other exports.
  next_start_time timestamptz,
  -- Log-end offsets at creation; the events before them must be stored before the export starts. Null for schedules.
  log_position jsonb,
  -- Runs that were first received later are not members.
  members_until timestamptz NOT NULL,
  -- Time at which the export left CREATED; its timeout is measured from this time.
  started_at timestamptz,
  -- Time at which the manifest was written. If still null when the export has ended, the set of files is incomplete.
  manifest_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz
);
CREATE INDEX bulk_exports_by_workspace ON bulk_exports (workspace_id, created_at, id);
CREATE INDEX bulk_exports_live ON bulk_exports (status, created_at) WHERE finished_at IS NULL;
CREATE INDEX bulk_exports_by_destination ON bulk_exports (destination_id) WHERE finished_at IS NULL;
-- A schedule creates one export per interval.
CREATE UNIQUE INDEX bulk_exports_by_source ON bulk_exports (source_bulk_export_id, start_time);

-- Export runs: each contains one UTC day of an export, clipped to the range of the export. The row determines the work;
-- a job only wakes a worker.
CREATE TABLE bulk_export_runs (
  id uuid PRIMARY KEY,
  bulk_export_id uuid NOT NULL REFERENCES bulk_exports (id),
  workspace_id uuid NOT NULL,
  start_time timestamptz NOT NULL,
  end_time timestamptz NOT NULL,
  status text NOT NULL,
  -- Fencing token. Each claim raises it; only the worker with the latest token may write.
  fence bigint NOT NULL DEFAULT 0,
  -- Expiry of the lease, which its worker renews. If null or in the past, no worker holds the lease, regardless of the
  -- other columns.
  lease_until timestamptz,
  -- Start of the attempt that has not ended. Null while the export run is pending.
  attempt_started_at timestamptz,
  -- A pending export run is not claimed before this time.
  next_attempt_at timestamptz NOT NULL DEFAULT now(),
  retry_number integer NOT NULL DEFAULT 0,
  -- The error of each failed attempt, under the keys retry_0, retry_1, …
  errors jsonb,
  -- Number of members, counted at the first claim.
  rows_total bigint,
  rows_written bigint NOT NULL DEFAULT 0,
  bytes_written bigint NOT NULL DEFAULT 0,
  -- Number of runs in the range that were received too late to be exported.
  late_runs bigint,
  -- Key of the last run of the last recorded file: {startTimeMicros, traceId, runId}.
  latest_cursor jsonb,
  -- The part that is about to be written, or that was written but not recorded: {part, after, last, rows, bytes, path,
  -- uploadId}.
  pending_upload jsonb,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  finished_at timestamptz,
  UNIQUE (bulk_export_id, start_time)
);
CREATE INDEX bulk_export_runs_live ON bulk_export_runs (bulk_export_id, start_time) WHERE finished_at IS NULL;
-- Unrecorded uploads of finished export runs, which are to be aborted or deleted.
CREATE INDEX bulk_export_runs_untidy ON bulk_export_runs (finished_at)
  WHERE finished_at IS NOT NULL AND pending_upload IS NOT NULL;

-- Files that are complete in the bucket.
CREATE TABLE bulk_export_files (
  bulk_export_run_id uuid NOT NULL REFERENCES bulk_export_runs (id),
  part integer NOT NULL,
  -- Full location for the owner of the bucket: bucket, prefix and key.
  path text NOT NULL,
  rows bigint NOT NULL,
  bytes bigint NOT NULL,
  sha256 text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- ETag that the store returned for the file; null if it could not be read.
  etag text,
  -- Time at which the check before the manifest last found the file in the bucket.
  checked_at timestamptz,
  PRIMARY KEY (bulk_export_run_id, part)
);
