-- The feedback config that was sent with the link, as JSON text. Feedback that is submitted with the link must match it.
ALTER TABLE feedback_tokens ADD COLUMN IF NOT EXISTS feedback_config text;
