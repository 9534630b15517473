-- Every slug that a deployment has had. A slug stays with its organisation after the deletion of the deployment, because
-- clients still send their keys to its address.
CREATE TABLE IF NOT EXISTS deployment_slugs (
  slug text PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id)
);
INSERT INTO deployment_slugs (slug, organization_id) SELECT slug, organization_id FROM deployments ON CONFLICT DO NOTHING;
