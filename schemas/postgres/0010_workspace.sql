-- Shares of threads (kind `thread`): `target_id` is a hash of the project and the thread id.
ALTER TABLE shares ADD COLUMN IF NOT EXISTS project_id uuid;
ALTER TABLE shares ADD COLUMN IF NOT EXISTS thread_id text;
