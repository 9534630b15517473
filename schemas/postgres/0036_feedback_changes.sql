-- Feedback entries that an API process is changing. Other processes wait until it ends, or until its lease ends.
CREATE TABLE IF NOT EXISTS feedback_changes (
  workspace_id uuid NOT NULL,
  feedback_id uuid NOT NULL,
  lease uuid NOT NULL,
  lease_until timestamptz NOT NULL,
  PRIMARY KEY (workspace_id, feedback_id)
);
