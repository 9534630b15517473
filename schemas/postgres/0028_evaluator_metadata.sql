-- Metadata of an evaluator: JSON as text, because jsonb cannot hold every JSON text.
ALTER TABLE evaluators ADD COLUMN IF NOT EXISTS metadata text;
-- Copy for filtering lists of evaluators. Characters that jsonb cannot hold are replaced.
ALTER TABLE evaluators ADD COLUMN IF NOT EXISTS searchable jsonb NOT NULL DEFAULT '{}';
