-- Tracing projects (called sessions on the wire). A deleted project keeps its row, because usage keeps its name.
CREATE TABLE projects (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  description text,
  -- JSON as text: jsonb cannot hold every JSON text (NUL characters, lone surrogates).
  extra text,
  -- extra.metadata for the filter of the list, with the characters that jsonb cannot hold replaced.
  metadata jsonb NOT NULL DEFAULT '{}',
  start_time timestamptz NOT NULL DEFAULT now(),
  end_time timestamptz,
  default_dataset_id uuid,
  reference_dataset_id uuid,
  trace_tier text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  -- When the runs of a deleted project were gone. Deleted without it: the deletion has to be started again.
  purged_at timestamptz
);
CREATE UNIQUE INDEX projects_by_name ON projects (workspace_id, name) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_start ON projects (workspace_id, start_time, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_to_purge ON projects (id) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;

-- Names that a project had: a patch that was written before a rename still finds its project.
CREATE TABLE project_former_names (
  workspace_id uuid NOT NULL,
  name text NOT NULL,
  project_id uuid NOT NULL REFERENCES projects (id),
  until timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (workspace_id, name)
);
