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
