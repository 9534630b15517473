-- Clients name a feedback config by its id.
ALTER TABLE feedback_configs ADD COLUMN IF NOT EXISTS id uuid NOT NULL DEFAULT gen_random_uuid();

-- Finds out which runs of a page are sources of current examples.
CREATE INDEX IF NOT EXISTS examples_by_source_run ON examples (workspace_id, source_run_id)
  WHERE source_run_id IS NOT NULL AND valid_to = 'infinity';
