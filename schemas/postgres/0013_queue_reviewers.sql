-- Who completes the runs of a queue: `any`, as many users as it asks for; `assigned`, all its reviewers.
ALTER TABLE annotation_queues ADD COLUMN IF NOT EXISTS reviewer_access_mode text NOT NULL DEFAULT 'any';

CREATE TABLE IF NOT EXISTS annotation_queue_reviewers (
  queue_id uuid NOT NULL REFERENCES annotation_queues (id) ON DELETE CASCADE,
  user_id uuid NOT NULL REFERENCES users (id),
  added_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (queue_id, user_id)
);

-- An item of a queue is a run, or a thread of a project.
ALTER TABLE annotation_queue_runs ALTER COLUMN run_id DROP NOT NULL;
ALTER TABLE annotation_queue_runs ADD COLUMN IF NOT EXISTS project_id uuid;
ALTER TABLE annotation_queue_runs ADD COLUMN IF NOT EXISTS thread_id text;
ALTER TABLE annotation_queue_runs DROP CONSTRAINT IF EXISTS annotation_queue_run_or_thread;
ALTER TABLE annotation_queue_runs ADD CONSTRAINT annotation_queue_run_or_thread CHECK (
  (run_id IS NOT NULL AND project_id IS NULL AND thread_id IS NULL)
  OR (run_id IS NULL AND project_id IS NOT NULL AND thread_id IS NOT NULL));
CREATE UNIQUE INDEX IF NOT EXISTS annotation_queue_threads ON annotation_queue_runs (queue_id, project_id, thread_id)
  WHERE run_id IS NULL;
