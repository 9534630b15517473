-- Organisation → workspaces → users → API keys. Nothing here is ever deleted for good: usage keeps the names.
CREATE TABLE organizations (
  id uuid PRIMARY KEY,
  display_name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE workspaces (
  id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  display_name text NOT NULL,
  tenant_handle text,
  created_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz
);
CREATE INDEX workspaces_of_organization ON workspaces (organization_id);
CREATE UNIQUE INDEX workspaces_by_handle ON workspaces (tenant_handle) WHERE deleted_at IS NULL;

CREATE TABLE users (
  id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  email text NOT NULL,
  full_name text,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX users_by_email ON users (organization_id, lower(email));

CREATE TABLE api_keys (
  id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  -- The workspaces that the key reaches; null: all of the organisation. With exactly one, X-Tenant-Id is not needed.
  workspace_ids uuid[],
  -- The workspace of a request without X-Tenant-Id, for keys that reach several.
  default_workspace_id uuid REFERENCES workspaces (id),
  user_id uuid NOT NULL REFERENCES users (id),
  -- SHA-256 of the key. The keys are random with 192 bits and more, so no salt or slow hash is needed.
  hash bytea NOT NULL UNIQUE,
  short_key text NOT NULL,
  description text NOT NULL,
  -- Names of permissions, or '*' for all of them, also those of later releases.
  permissions text[] NOT NULL,
  read_only boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz,
  expires_at timestamptz,
  revoked_at timestamptz
);
CREATE INDEX api_keys_of_organization ON api_keys (organization_id);
