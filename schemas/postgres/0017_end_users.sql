-- Who runs graphs where a project's own authentication says who asks: usage counts them each by itself. They are no users of the
-- organisation and have no keys. The id follows from organisation and identity.
CREATE TABLE end_users (
  organization_id uuid NOT NULL REFERENCES organizations (id),
  id uuid NOT NULL,
  identity text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id)
);
