-- Shares of threads (kind `thread`): `target_id` is a hash of the project and the thread id.
ALTER TABLE shares ADD COLUMN IF NOT EXISTS project_id uuid;
ALTER TABLE shares ADD COLUMN IF NOT EXISTS thread_id text;

-- Links that accept feedback without a key. The token of a link is derived from its row; no secret is stored.
CREATE TABLE IF NOT EXISTS feedback_tokens (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  user_id uuid NOT NULL,
  run_id uuid NOT NULL,
  feedback_key text NOT NULL,
  -- Whole seconds.
  expires_at timestamptz NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS feedback_tokens_of_run ON feedback_tokens (workspace_id, run_id);
CREATE INDEX IF NOT EXISTS feedback_tokens_by_expiry ON feedback_tokens (workspace_id, expires_at);

-- Secrets of a workspace. Responses never contain their values.
CREATE TABLE IF NOT EXISTS workspace_secrets (
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  key text NOT NULL,
  sealed_value text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (workspace_id, key)
);

-- Tags of resources: keys, their values, and the resources that have a value.
CREATE TABLE IF NOT EXISTS tag_keys (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  key text NOT NULL,
  description text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (workspace_id, key)
);
CREATE TABLE IF NOT EXISTS tag_values (
  id uuid PRIMARY KEY,
  tag_key_id uuid NOT NULL REFERENCES tag_keys (id) ON DELETE CASCADE,
  value text NOT NULL,
  description text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (tag_key_id, value)
);
CREATE TABLE IF NOT EXISTS taggings (
  id uuid PRIMARY KEY,
  tag_value_id uuid NOT NULL REFERENCES tag_values (id) ON DELETE CASCADE,
  resource_type text NOT NULL,
  resource_id uuid NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (tag_value_id, resource_type, resource_id)
);
CREATE INDEX IF NOT EXISTS taggings_of_resource ON taggings (resource_id);

-- At most one soft and one hard limit of each type for a workspace.
CREATE TABLE IF NOT EXISTS usage_limits (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  limit_type text NOT NULL,
  limit_value bigint NOT NULL,
  -- A hard limit refuses runs, a soft limit only warns.
  is_hard boolean NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (workspace_id, limit_type, is_hard)
);
