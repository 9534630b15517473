-- State of threads: the tables that setup() of @langchain/langgraph-checkpoint-postgres 1.0.5 creates. Runlake never
-- calls setup(), because concurrent calls fail. `thread_id` is `<deployment_id>:<thread_id>`. The primary keys are the
-- only indexes, because every query for the state of a run reads the whole thread.
CREATE TABLE agents.checkpoint_migrations (
  v integer PRIMARY KEY
);
INSERT INTO agents.checkpoint_migrations (v) VALUES (0), (1), (2), (3), (4);

CREATE TABLE agents.checkpoints (
  thread_id text NOT NULL,
  checkpoint_ns text NOT NULL DEFAULT '',
  checkpoint_id text NOT NULL,
  parent_checkpoint_id text,
  type text,
  checkpoint jsonb NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  -- Added by Runlake: the former checkpoint and metadata, if a run replaced a row that another run had written.
  replaced jsonb,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);

CREATE TABLE agents.checkpoint_blobs (
  thread_id text NOT NULL,
  checkpoint_ns text NOT NULL DEFAULT '',
  channel text NOT NULL,
  version text NOT NULL,
  type text NOT NULL,
  blob bytea,
  PRIMARY KEY (thread_id, checkpoint_ns, channel, version)
);

CREATE TABLE agents.checkpoint_writes (
  thread_id text NOT NULL,
  checkpoint_ns text NOT NULL DEFAULT '',
  checkpoint_id text NOT NULL,
  task_id text NOT NULL,
  idx integer NOT NULL,
  channel text NOT NULL,
  type text,
  blob bytea NOT NULL,
  -- Added by Runlake for rollbacks: the run that wrote the row, and the former contents of the row. A run that resumes
  -- an interrupted thread adds writes to the checkpoint of the earlier run, and replaces some of its rows.
  run_id text,
  replaced_run_id text,
  replaced_type text,
  replaced_blob bytea,
  PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

-- Returns the namespace of an item as text, for indexes. The text is unambiguous, because labels contain no dots. An
-- index on the array would not work: under row-level security, Postgres does not use an index for conditions on arrays,
-- because comparing arrays is not leakproof.
CREATE FUNCTION agents.namespace_path(text[]) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT array_to_string($1, '.') || '.' $$;

-- Items that graphs and clients store across threads.
CREATE TABLE agents.store_items (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  -- Compared by bytes, so that all namespaces with a common prefix are adjacent.
  namespace text[] COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- The value as received, and a copy without NUL characters for filters.
  value json NOT NULL,
  searchable jsonb NOT NULL,
  ttl_minutes double precision,
  expires_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  namespace_path text COLLATE "C" GENERATED ALWAYS AS (agents.namespace_path(namespace)) STORED,
  PRIMARY KEY (deployment_id, namespace, key)
);
CREATE INDEX store_items_expiring ON agents.store_items (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX store_items_by_path ON agents.store_items (deployment_id, namespace_path, key);
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.store_items
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();

-- Vectors of the texts in an item, normalised to length one, so that their dot product is their cosine similarity.
CREATE TABLE agents.store_vectors (
  deployment_id uuid NOT NULL,
  namespace text[] COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- The path of the text in the value, with the index of the text if several texts match.
  path text NOT NULL,
  embedding real[] NOT NULL,
  namespace_path text COLLATE "C" GENERATED ALWAYS AS (agents.namespace_path(namespace)) STORED,
  PRIMARY KEY (deployment_id, namespace, key, path),
  FOREIGN KEY (deployment_id, namespace, key) REFERENCES agents.store_items ON DELETE CASCADE
);
CREATE INDEX store_vectors_by_path ON agents.store_vectors (deployment_id, namespace_path, key);

-- Accounts of processes that run graph code, with the only deployment whose rows they can access. Accounts that are not
-- listed here, and the owner of the tables, are not restricted to one deployment. The row of an account is written in
-- the transaction that creates the account.
CREATE TABLE agents.graph_accounts (
  account name PRIMARY KEY,
  deployment_id uuid NOT NULL
);

-- Returns the deployment of the account of the connection, or NULL. SET ROLE does not change this account. The function
-- is SECURITY DEFINER because the account itself has no privileges on the table.
CREATE FUNCTION agents.own_deployment() RETURNS uuid
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (SELECT deployment_id FROM agents.graph_accounts WHERE account = session_user);
END $$;

ALTER TABLE agents.checkpoints ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.checkpoint_blobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.checkpoint_writes ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.store_items ENABLE ROW LEVEL SECURITY;
ALTER TABLE agents.store_vectors ENABLE ROW LEVEL SECURITY;
-- The function calls are in sub-selects, so that Postgres executes them once for each statement and not for each row.
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
