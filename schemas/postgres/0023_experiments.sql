-- What clients say of an experiment when they create its project.
ALTER TABLE projects ADD COLUMN num_examples integer;
ALTER TABLE projects ADD COLUMN num_repetitions integer;
ALTER TABLE projects ADD COLUMN evaluator_keys text[];

-- Clients need a handle for prompts: the first workspace of an older installation gets one, as that of a new installation does.
UPDATE workspaces SET tenant_handle = 'default'
WHERE id = (SELECT id FROM workspaces WHERE deleted_at IS NULL ORDER BY created_at, id LIMIT 1)
  AND tenant_handle IS NULL
  AND NOT EXISTS (SELECT FROM workspaces WHERE tenant_handle = 'default' AND deleted_at IS NULL);
