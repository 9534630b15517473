-- Number of starts in a row that failed for a reason outside of the deployment, such as an engine that does not answer. They
-- delay the next start, and do not fail the revision.
ALTER TABLE deployment_replicas ADD COLUMN IF NOT EXISTS transient_failures integer NOT NULL DEFAULT 0;
