-- Datasets, and the examples in them. Each write to the examples of a dataset makes a version, named by its time.
CREATE TABLE datasets (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  description text,
  data_type text NOT NULL,
  -- JSON as text: jsonb cannot hold every JSON text (NUL characters, lone surrogates), and reorders the keys.
  inputs_schema_definition text,
  outputs_schema_definition text,
  metadata text,
  -- Copy of `metadata`, for filtering. Characters that jsonb cannot hold are replaced.
  searchable jsonb NOT NULL DEFAULT '{}',
  baseline_experiment_id uuid,
  externally_managed boolean NOT NULL DEFAULT false,
  -- Number of examples in the newest version.
  example_count integer NOT NULL DEFAULT 0,
  -- Time of the newest version; null before the first one.
  last_version timestamptz,
  version_count integer NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  modified_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX datasets_by_name ON datasets (workspace_id, name);

-- Versions have whole milliseconds, because JavaScript clients send times with milliseconds.
CREATE TABLE dataset_versions (
  dataset_id uuid NOT NULL REFERENCES datasets (id) ON DELETE CASCADE,
  as_of timestamptz NOT NULL,
  PRIMARY KEY (dataset_id, as_of)
);

CREATE TABLE dataset_tags (
  dataset_id uuid NOT NULL,
  tag text NOT NULL,
  as_of timestamptz NOT NULL,
  PRIMARY KEY (dataset_id, tag),
  FOREIGN KEY (dataset_id, as_of) REFERENCES dataset_versions (dataset_id, as_of) ON DELETE CASCADE
);
CREATE INDEX dataset_tags_by_version ON dataset_tags (dataset_id, as_of);

-- One row for each state of an example. A row is part of the versions from `valid_from` until before `valid_to`. A
-- write adds rows and ends others; it never changes the content of a row.
CREATE TABLE examples (
  workspace_id uuid NOT NULL,
  dataset_id uuid NOT NULL REFERENCES datasets (id) ON DELETE CASCADE,
  id uuid NOT NULL,
  valid_from timestamptz NOT NULL,
  valid_to timestamptz NOT NULL DEFAULT 'infinity',
  created_at timestamptz NOT NULL,
  -- JSON as text, as it was sent.
  inputs text NOT NULL,
  outputs text,
  metadata text NOT NULL,
  -- Copy of `metadata`, for filtering. `dataset_split` in it is the list of splits.
  searchable jsonb NOT NULL,
  source_run_id uuid,
  -- Name of each attachment → where its content is in the table `attachments` of ClickHouse.
  attachments jsonb NOT NULL DEFAULT '{}',
  PRIMARY KEY (dataset_id, id, valid_from)
);
-- An id belongs to one example of the workspace: at most one row has `valid_to = 'infinity'`.
CREATE UNIQUE INDEX examples_by_id ON examples (workspace_id, id, valid_to);
-- Contains all columns that a page in the default order needs to find its rows.
CREATE INDEX examples_by_version ON examples (dataset_id, valid_from, id) INCLUDE (valid_to);

-- Attachments that are stored for examples that are not committed yet; see `pipelines/datasets/pending-attachments.ts`.
CREATE TABLE pending_attachment_sets (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX pending_attachment_sets_by_time ON pending_attachment_sets (created_at);

-- Comparisons of experiments on a dataset. Feedback refers to them.
CREATE TABLE comparative_experiments (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL,
  dataset_id uuid NOT NULL REFERENCES datasets (id) ON DELETE CASCADE,
  experiment_ids uuid[] NOT NULL,
  name text,
  description text,
  -- JSON as text, as it was sent.
  extra text,
  created_at timestamptz NOT NULL DEFAULT now(),
  modified_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX comparative_experiments_by_dataset ON comparative_experiments (dataset_id, created_at, id);

CREATE INDEX projects_of_dataset ON projects (reference_dataset_id) WHERE reference_dataset_id IS NOT NULL AND deleted_at IS NULL;
