-- When a run was added to a queue. Requests change `added_at`, which orders the runs.
ALTER TABLE annotation_queue_runs ADD COLUMN IF NOT EXISTS inserted_at timestamptz NOT NULL DEFAULT now();
