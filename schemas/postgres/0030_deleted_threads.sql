-- Deleted threads whose stream events may still be in the log or in ClickHouse. The events of a later thread with the
-- same id have higher thread sequence numbers, so that its readers can skip those of the deleted thread.
CREATE TABLE IF NOT EXISTS agents.deleted_threads (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  thread_id uuid NOT NULL,
  -- `starts` of the thread when it was deleted.
  starts bigint NOT NULL,
  -- When the stored events of the thread are to be deleted; the row is then deleted too.
  purge_at timestamptz NOT NULL,
  PRIMARY KEY (deployment_id, thread_id)
);
CREATE INDEX IF NOT EXISTS deleted_threads_to_purge ON agents.deleted_threads (deployment_id, purge_at);

-- `starts` of the thread when it was created: those of deleted threads with the same id. Usually 0.
ALTER TABLE agents.threads ADD COLUMN IF NOT EXISTS earlier_starts bigint NOT NULL DEFAULT 0;

-- Runs after the insert, because only the insert waits for a concurrent deletion of the previous thread.
CREATE OR REPLACE FUNCTION agents.continue_starts() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE agents.threads thread SET starts = deleted.starts, earlier_starts = deleted.starts
  FROM agents.deleted_threads deleted
  WHERE deleted.deployment_id = NEW.deployment_id AND deleted.thread_id = NEW.thread_id
    AND thread.deployment_id = NEW.deployment_id AND thread.thread_id = NEW.thread_id;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER continue_starts AFTER INSERT ON agents.threads
FOR EACH ROW EXECUTE FUNCTION agents.continue_starts();
