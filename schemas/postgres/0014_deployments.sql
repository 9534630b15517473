-- Deployments of agent servers, as the control plane creates and runs them.
CREATE TABLE IF NOT EXISTS deployments (
  -- All rows of the agent server belong to the row of the same id in `agents.deployments`. That row stays, closed, after
  -- the deletion of the deployment.
  id uuid PRIMARY KEY REFERENCES agents.deployments (deployment_id),
  organization_id uuid NOT NULL REFERENCES organizations (id),
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  -- The name in the address of the deployment. Fixed at creation.
  slug text NOT NULL CONSTRAINT deployment_slug_unique UNIQUE,
  source text NOT NULL CHECK (source IN ('github', 'external_docker', 'internal_docker', 'internal_source')),
  source_config json NOT NULL,
  source_revision_config json NOT NULL,
  -- A JSON object of names and values, sealed for `deployment <id>`; null if there are no secrets.
  sealed_secrets text,
  secret_names text[] NOT NULL DEFAULT '{}',
  secret_references json NOT NULL DEFAULT '[]',
  tracing_project_id uuid,
  latest_revision_id uuid,
  -- The revision whose replicas serve requests.
  active_revision_id uuid,
  -- The last request through the proxy, with a precision of some seconds.
  last_used_at timestamptz NOT NULL DEFAULT now(),
  -- Whether the replicas are stopped until the next request.
  is_asleep boolean NOT NULL DEFAULT false,
  -- From then on the replicas drain; a host then deletes the rows.
  deletion_requested_at timestamptz,
  deletes_project boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX IF NOT EXISTS deployment_name_unique ON deployments (workspace_id, name)
  WHERE deletion_requested_at IS NULL;
CREATE INDEX IF NOT EXISTS deployments_by_time ON deployments (workspace_id, created_at DESC, id);

CREATE TABLE IF NOT EXISTS deployment_revisions (
  id uuid PRIMARY KEY,
  deployment_id uuid NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  -- Order of creation within the deployment, from 1.
  number integer NOT NULL,
  status text NOT NULL DEFAULT 'CREATING' CHECK (status IN ('CREATING', 'QUEUED', 'AWAITING_BUILD', 'BUILDING',
    'AWAITING_DEPLOY', 'DEPLOYING', 'DEPLOYED', 'CREATE_FAILED', 'BUILD_FAILED', 'DEPLOY_FAILED', 'SKIPPED', 'INTERRUPTED')),
  -- Snapshots of the deployment at the creation of the revision.
  source text NOT NULL,
  source_config json NOT NULL,
  source_revision_config json NOT NULL,
  -- Sealed for `revision <id>`.
  sealed_secrets text,
  secret_references json NOT NULL DEFAULT '[]',
  -- The fencing token. Each claim increments it, and each write of a host checks it.
  fence bigint NOT NULL DEFAULT 0,
  host_id uuid,
  lease_until timestamptz,
  -- Number of claims in the current status. Claims after the first follow the crash of a host.
  attempts integer NOT NULL DEFAULT 0,
  status_changed_at timestamptz NOT NULL DEFAULT now(),
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (deployment_id, number)
);
CREATE INDEX IF NOT EXISTS deployment_revisions_unfinished ON deployment_revisions (created_at)
  WHERE status IN ('CREATING', 'QUEUED', 'AWAITING_BUILD', 'BUILDING', 'AWAITING_DEPLOY', 'DEPLOYING');

-- The history of a revision.
CREATE TABLE IF NOT EXISTS revision_transitions (
  revision_id uuid NOT NULL REFERENCES deployment_revisions (id) ON DELETE CASCADE,
  position integer NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- Null for the creation.
  from_status text,
  to_status text NOT NULL,
  reason text NOT NULL,
  PRIMARY KEY (revision_id, position)
);

-- Output of builds and replicas. The oldest chunks are deleted when a revision has too many.
CREATE TABLE IF NOT EXISTS revision_logs (
  revision_id uuid NOT NULL REFERENCES deployment_revisions (id) ON DELETE CASCADE,
  sequence bigint GENERATED ALWAYS AS IDENTITY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  stage text NOT NULL CHECK (stage IN ('build', 'deploy', 'run')),
  -- Lines, without secrets.
  text text NOT NULL,
  PRIMARY KEY (revision_id, sequence)
);

-- Started agent servers. A replica is wanted while its revision is DEPLOYING or active; see `pipelines/deployments/replicas.ts`.
CREATE TABLE IF NOT EXISTS deployment_replicas (
  revision_id uuid NOT NULL REFERENCES deployment_revisions (id) ON DELETE CASCADE,
  number integer NOT NULL,
  deployment_id uuid NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
  fence bigint NOT NULL DEFAULT 0,
  host_id uuid,
  lease_until timestamptz,
  -- Set while the replica answers.
  url text,
  started_at timestamptz,
  -- Number of starts after the first one.
  restarts integer NOT NULL DEFAULT 0,
  -- Number of starts that failed since the replica last answered.
  failures integer NOT NULL DEFAULT 0,
  last_error text,
  next_start_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (revision_id, number)
);
CREATE INDEX IF NOT EXISTS deployment_replicas_of_deployment ON deployment_replicas (deployment_id);
CREATE INDEX IF NOT EXISTS deployment_replicas_of_host ON deployment_replicas (host_id);

-- Source tarballs. A row is created with the upload URL; its object exists when `uploaded_at` is set.
CREATE TABLE IF NOT EXISTS source_uploads (
  id uuid PRIMARY KEY,
  deployment_id uuid NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  object_path text NOT NULL UNIQUE,
  size_bytes bigint,
  sha256 text,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  uploaded_at timestamptz
);
CREATE INDEX IF NOT EXISTS source_uploads_of_deployment ON source_uploads (deployment_id);
