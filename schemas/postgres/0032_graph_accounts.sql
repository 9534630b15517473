-- Accounts of processes that run graph code reach rows of one deployment only. An account that is not in this table reaches all rows
-- that it has rights to, and so does the owner of the tables. The row of an account is written in the transaction that creates it.
CREATE TABLE agents.graph_accounts (
  account name PRIMARY KEY,
  deployment_id uuid NOT NULL
);

-- The deployment of the account that is connected, or NULL. SECURITY DEFINER: the account itself has no right to the table. The account is
-- that of the connection; SET ROLE does not change it.
CREATE FUNCTION agents.own_deployment() RETURNS uuid
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT deployment_id FROM agents.graph_accounts WHERE account = session_user);
END $$;

-- The namespace of an item as text, for indexes: labels have no dots. Row-level security keeps conditions on arrays from using an index,
-- because comparing arrays is not leakproof.
CREATE FUNCTION agents.namespace_path(text[]) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT array_to_string($1, '.') || '.' $$;
ALTER TABLE agents.store_items
  ADD COLUMN IF NOT EXISTS namespace_path text COLLATE "C" GENERATED ALWAYS AS (agents.namespace_path(namespace)) STORED;
ALTER TABLE agents.store_vectors
  ADD COLUMN IF NOT EXISTS namespace_path text COLLATE "C" GENERATED ALWAYS AS (agents.namespace_path(namespace)) STORED;
CREATE INDEX store_items_by_path ON agents.store_items (deployment_id, namespace_path, key);
CREATE INDEX store_vectors_by_path ON agents.store_vectors (deployment_id, namespace_path, key);

ALTER TABLE agents.checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.checkpoint_blobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.checkpoint_writes ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.store_items ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.store_vectors ENABLE ROW LEVEL SECURITY;
-- The sub-selects run once for each statement.
CREATE POLICY own_deployment ON agents.checkpoints
  USING (starts_with(thread_id, coalesce((SELECT agents.own_deployment() || ':'), '')));
CREATE POLICY own_deployment ON agents.checkpoint_blobs
  USING (starts_with(thread_id, coalesce((SELECT agents.own_deployment() || ':'), '')));
CREATE POLICY own_deployment ON agents.checkpoint_writes
  USING (starts_with(thread_id, coalesce((SELECT agents.own_deployment() || ':'), '')));
CREATE POLICY own_deployment ON agents.store_items
  USING (deployment_id = coalesce((SELECT agents.own_deployment()), deployment_id));
CREATE POLICY own_deployment ON agents.store_vectors
  USING (deployment_id = coalesce((SELECT agents.own_deployment()), deployment_id));
