-- When a user was removed. The row stays, because usage and feedback keep its name. A new user may have the email of a removed one.
ALTER TABLE users ADD COLUMN IF NOT EXISTS removed_at timestamptz;
DROP INDEX IF EXISTS users_by_email;
CREATE UNIQUE INDEX users_by_email ON users (organization_id, lower(email)) WHERE removed_at IS NULL;
