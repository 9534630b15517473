-- Organisation → workspaces → users → API keys. Rows are marked as deleted, never removed, because usage shows their
-- names.
CREATE TABLE organizations (
  id uuid PRIMARY KEY,
  display_name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- `purged_at` of its workspaces shows the progress of the deletion.
  deleted_at timestamptz
);
-- The oldest organisation is that of the operator.
CREATE INDEX organizations_by_age ON organizations (created_at, id);

CREATE TABLE workspaces (
  id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  display_name text NOT NULL,
  tenant_handle text,
  created_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  -- Progress of the deletion of the workspace's data: null before the first purge, equal to `deleted_at` after it, and
  -- the time of the second purge after that. The second purge follows an hour after the deletion, for events that were
  -- in flight. Until it is complete, the deletion has to be queued again.
  purged_at timestamptz
);
CREATE INDEX workspaces_of_organization ON workspaces (organization_id);
CREATE UNIQUE INDEX workspaces_by_handle ON workspaces (tenant_handle) WHERE deleted_at IS NULL;

CREATE TABLE users (
  id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  email text NOT NULL,
  full_name text,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- The row of a removed user stays, because usage and feedback show the user's name.
  removed_at timestamptz
);
-- A new user may have the email of a removed user.
CREATE UNIQUE INDEX users_by_email ON users (organization_id, lower(email)) WHERE removed_at IS NULL;

CREATE TABLE api_keys (
  id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  -- The workspaces that the key can access; null means all workspaces of the organisation. If there is exactly one,
  -- X-Tenant-Id is optional.
  workspace_ids uuid[],
  -- The workspace of a request without X-Tenant-Id, for keys that can access several workspaces.
  default_workspace_id uuid REFERENCES workspaces (id),
  user_id uuid NOT NULL REFERENCES users (id),
  -- SHA-256 of the key. Keys have at least 192 random bits, so no salt or slow hash is needed.
  hash bytea NOT NULL UNIQUE,
  short_key text NOT NULL,
  description text NOT NULL,
  -- Names of permissions, or '*' for all of them, including those of later releases.
  permissions text[] NOT NULL,
  read_only boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz,
  expires_at timestamptz,
  revoked_at timestamptz
);
CREATE INDEX api_keys_of_organization ON api_keys (organization_id);

-- Users that the custom authentication of a project identifies; usage counts each of them. They are not users of the
-- organisation and have no keys. The id is derived from organisation and identity.
CREATE TABLE end_users (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  id uuid NOT NULL,
  identity text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id)
);

-- Tracing projects (called sessions on the wire). A deleted project keeps its row, because usage shows its name.
CREATE TABLE projects (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  description text,
  -- JSON as text: jsonb cannot hold every JSON text (NUL characters, lone surrogates).
  extra text,
  -- Copy of extra.metadata, for filtering lists of projects. Characters that jsonb cannot hold are replaced.
  metadata jsonb NOT NULL DEFAULT '{}',
  start_time timestamptz NOT NULL DEFAULT now(),
  end_time timestamptz,
  default_dataset_id uuid,
  reference_dataset_id uuid,
  trace_tier text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  -- Time at which the deletion of the project's runs was complete. If this is null and `deleted_at` is set, the
  -- deletion has to be started again.
  purged_at timestamptz,
  -- Clients send the following three fields when they create the project of an experiment.
  num_examples integer,
  num_repetitions integer,
  evaluator_keys text[]
);
CREATE UNIQUE INDEX projects_by_name ON projects (workspace_id, name) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_start ON projects (workspace_id, start_time, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_to_purge ON projects (id) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;
-- Usage reads names by workspace, including those of deleted projects, which the other indexes leave out.
CREATE INDEX projects_of_workspace ON projects (workspace_id);

-- Former names of projects: a patch that was written before a rename still finds its project.
CREATE TABLE project_former_names (
  workspace_id uuid NOT NULL,
  name text NOT NULL,
  project_id uuid NOT NULL REFERENCES projects (id),
  until timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (workspace_id, name)
);

-- Traces and datasets that anyone who has the token can read. Deleting the row ends that at once.
CREATE TABLE shares (
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  -- `trace` or `dataset`.
  kind text NOT NULL,
  target_id uuid NOT NULL,
  -- SHA-256 of the token, by which public requests find the share. Tokens have 122 random bits.
  token_hash bytea NOT NULL UNIQUE,
  -- The encrypted token, for the API responses that return it.
  sealed_token text NOT NULL,
  -- Whether the experiments on a dataset are shared too.
  with_experiments boolean NOT NULL DEFAULT false,
  shared_by uuid NOT NULL REFERENCES users (id),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (workspace_id, kind, target_id)
);

-- Requests of the current second by API key and by organisation. Used if RUNLAKE_RATE_LIMIT_PER_KEY or
-- RUNLAKE_RATE_LIMIT_PER_ORGANIZATION is set and Redis is not. The package rate-limiter-flexible defines the columns.
-- The table is unlogged: a crash loses the counts, so that the limits are not enforced for up to one second.
CREATE UNLOGGED TABLE rate_limits (
  key text PRIMARY KEY,
  points integer NOT NULL DEFAULT 0,
  expire bigint
);
