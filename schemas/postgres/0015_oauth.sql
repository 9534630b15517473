-- OAuth 2: the providers of an organisation, the tokens of users, and the authentications that wait for a user.
CREATE TABLE IF NOT EXISTS oauth_providers (
  id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  -- Name that callers choose; part of the redirect URI.
  provider_id text NOT NULL,
  name text NOT NULL,
  client_id text NOT NULL,
  -- Null for public clients.
  sealed_client_secret text,
  auth_url text NOT NULL,
  token_url text NOT NULL,
  revocation_url text,
  -- Known only if the metadata of the authorization server was read.
  issuer text,
  mcp_server_url text,
  -- Resource indicator (RFC 8707) of each request.
  resource text,
  uses_pkce boolean NOT NULL,
  provider_type text,
  token_endpoint_auth_method text NOT NULL,
  redirect_uri text NOT NULL,
  is_dynamic_client boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (organization_id, provider_id)
);

CREATE TABLE IF NOT EXISTS oauth_tokens (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  provider uuid NOT NULL REFERENCES oauth_providers (id) ON DELETE CASCADE,
  -- Id of a user of the organisation, or any name of an end user.
  user_id text NOT NULL,
  scopes text[] NOT NULL,
  sealed_access_token text NOT NULL,
  sealed_refresh_token text,
  -- Null if the provider sent no lifetime.
  expires_at timestamptz,
  -- Time from which the token is refreshed before it is used.
  fresh_until timestamptz,
  -- False if only the agents that are connected with the token may use it.
  for_any_agent boolean NOT NULL,
  is_default boolean NOT NULL,
  label text,
  -- The caller that refreshes the token. Null: nobody.
  refresh_lease uuid,
  refresh_lease_until timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS oauth_tokens_of_user ON oauth_tokens (workspace_id, user_id, provider);
CREATE INDEX IF NOT EXISTS oauth_tokens_of_provider ON oauth_tokens (provider);

CREATE TABLE IF NOT EXISTS oauth_agent_connections (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  agent_id text NOT NULL,
  token_id uuid NOT NULL REFERENCES oauth_tokens (id) ON DELETE CASCADE,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (workspace_id, agent_id, token_id)
);
CREATE INDEX IF NOT EXISTS oauth_agent_connections_of_token ON oauth_agent_connections (token_id);

CREATE TABLE IF NOT EXISTS oauth_authentications (
  id uuid PRIMARY KEY,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  provider uuid NOT NULL REFERENCES oauth_providers (id) ON DELETE CASCADE,
  user_id text NOT NULL,
  agent_id text,
  scopes text[] NOT NULL,
  is_default boolean NOT NULL,
  -- Whether consent adds a token in any case.
  force_new boolean NOT NULL,
  -- The token that consent replaces, if the caller named it.
  replaced_token_id uuid,
  -- SHA-256 of the state, which has 256 random bits. Null after its use.
  state_hash bytea UNIQUE,
  sealed_code_verifier text,
  redirect_uri text NOT NULL,
  -- `pending`, `completed` or `failed`.
  status text NOT NULL DEFAULT 'pending',
  token_id uuid REFERENCES oauth_tokens (id) ON DELETE CASCADE,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS oauth_authentications_by_expiry ON oauth_authentications (workspace_id, expires_at);
CREATE INDEX IF NOT EXISTS oauth_authentications_of_provider ON oauth_authentications (provider);
CREATE INDEX IF NOT EXISTS oauth_authentications_of_token ON oauth_authentications (token_id);
