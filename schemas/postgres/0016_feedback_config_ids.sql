-- Clients name a feedback config by its id.
ALTER TABLE feedback_configs ADD COLUMN IF NOT EXISTS id uuid NOT NULL DEFAULT gen_random_uuid();
