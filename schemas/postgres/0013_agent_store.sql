-- What graphs and clients remember across threads.
CREATE TABLE agents.store_items (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  -- Ordered by bytes, so that all namespaces under a prefix lie together.
  namespace text[] COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- As it came, and for filters without NUL characters.
  value json NOT NULL,
  searchable jsonb NOT NULL,
  ttl_minutes double precision,
  expires_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, namespace, key)
);
CREATE INDEX store_items_expiring ON agents.store_items (expires_at) WHERE expires_at IS NOT NULL;

-- Vectors of the texts in an item, of length one, so that their product is their cosine.
CREATE TABLE agents.store_vectors (
  organization_id uuid NOT NULL,
  namespace text[] COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- Where in the value the text stands, and which of several that stand there.
  path text NOT NULL,
  embedding real[] NOT NULL,
  PRIMARY KEY (organization_id, namespace, key, path),
  FOREIGN KEY (organization_id, namespace, key) REFERENCES agents.store_items ON DELETE CASCADE
);
