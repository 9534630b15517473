-- The role of a member who signs in through OpenID Connect. Sessions are the only use of such a key: its hash is random.
ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS sign_in_role text CHECK (sign_in_role IN ('admin', 'editor', 'viewer'));

-- Sessions of the web application. A session has the permissions of its API key, as they are at each request.
CREATE TABLE IF NOT EXISTS sign_in_sessions (
  id uuid PRIMARY KEY,
  key_id uuid NOT NULL REFERENCES api_keys (id),
  -- Sent with each request that changes something. It is useless without the cookie.
  csrf_token text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_used_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS sign_in_sessions_of_key ON sign_in_sessions (key_id);
CREATE INDEX IF NOT EXISTS sign_in_sessions_by_expiry ON sign_in_sessions (expires_at);

-- The values of the cookie of a session. A session has several while its cookie is replaced.
CREATE TABLE IF NOT EXISTS sign_in_tokens (
  -- SHA-256 of the value, which has 256 random bits.
  hash bytea PRIMARY KEY,
  session_id uuid NOT NULL REFERENCES sign_in_sessions (id) ON DELETE CASCADE,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- First use. Null: it is not known whether the browser got this value.
  used_at timestamptz,
  -- Set on the other values of the session when a value is first used.
  valid_until timestamptz
);
CREATE INDEX IF NOT EXISTS sign_in_tokens_of_session ON sign_in_tokens (session_id);
