-- The agent server. Its tables are in a schema of their own, so that the account of processes that run graph code can
-- be limited to some of them. JSON of graphs and clients is `json`, as it was received (a NUL character is valid
-- there and not in `jsonb`). What is searched by containment is `jsonb`.
CREATE SCHEMA agents;

-- A deployment is one agent server, in one or more processes. It belongs to a workspace, and all rows of the agent
-- server belong to a deployment. The default deployment of an organisation has the id of the organisation and belongs
-- to its first workspace; an agent server creates it when it first starts.
CREATE TABLE agents.deployments (
  deployment_id uuid PRIMARY KEY,
  organization_id uuid NOT NULL REFERENCES organizations (id),
  workspace_id uuid NOT NULL REFERENCES workspaces (id),
  name text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  -- The deletion of a workspace sets it before it deletes rows. From then on no row can be added to the deployment.
  closed_at timestamptz
);

-- Foreign keys to `agents.deployments` lock its row FOR KEY SHARE. The deletion sets `closed_at` under FOR UPDATE, so
-- it waits for the transactions that added rows before. Triggers of one event fire by name, this one after those of
-- foreign keys: it sees `closed_at` of every deletion that did not wait. SECURITY DEFINER: graph code stores items,
-- but reads no deployments.
CREATE FUNCTION agents.require_open_deployment() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM agents.deployments WHERE deployment_id = NEW.deployment_id AND closed_at IS NOT NULL) THEN
    RAISE EXCEPTION 'deployment % is closed', NEW.deployment_id USING ERRCODE = 'RL001';
  END IF;
  RETURN NULL;
END $$;

CREATE TABLE agents.assistants (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  assistant_id uuid NOT NULL,
  -- The current version.
  version integer NOT NULL DEFAULT 1,
  graph_id text NOT NULL,
  name text NOT NULL,
  description text,
  config json NOT NULL DEFAULT '{}',
  context json,
  metadata jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (deployment_id, assistant_id)
);
CREATE INDEX assistants_by_metadata ON agents.assistants USING gin (metadata jsonb_path_ops);
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.assistants
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();

CREATE TABLE agents.assistant_versions (
  deployment_id uuid NOT NULL,
  assistant_id uuid NOT NULL,
  version integer NOT NULL,
  graph_id text NOT NULL,
  name text NOT NULL,
  description text,
  config json NOT NULL,
  context json,
  metadata jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (deployment_id, assistant_id, version),
  FOREIGN KEY (deployment_id, assistant_id) REFERENCES agents.assistants ON DELETE CASCADE
);

CREATE TABLE agents.threads (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  thread_id uuid NOT NULL,
  -- Thread of a stateless run: never returned to clients, and deleted with the run unless the client keeps it.
  hidden boolean NOT NULL DEFAULT false,
  status text NOT NULL DEFAULT 'idle' CHECK (status IN ('idle', 'busy', 'interrupted', 'error')),
  -- The status when no run is pending or running.
  rest_status text NOT NULL DEFAULT 'idle' CHECK (rest_status IN ('idle', 'interrupted', 'error')),
  metadata jsonb NOT NULL DEFAULT '{}',
  config json NOT NULL DEFAULT '{}',
  -- State after the last run that ended, as clients see it: `values` unchanged, `searchable_values` without NUL
  -- characters.
  values json,
  searchable_values jsonb,
  interrupts json NOT NULL DEFAULT '{}',
  error json,
  ttl_strategy text CHECK (ttl_strategy IN ('delete', 'keep_latest')),
  ttl_minutes double precision,
  expires_at timestamptz,
  -- When its first pending run is due; null if none is pending or one is running.
  next_due_at timestamptz,
  -- Starts of runs and updates of state so far. The sequence number of an event in the thread is this times 2^32 plus
  -- its number in the attempt.
  starts bigint NOT NULL DEFAULT 0,
  -- Lock for an update of state outside a run: until it ends no run is claimed, and the saver writes only under the
  -- token.
  write_token uuid,
  write_until timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  state_updated_at timestamptz NOT NULL DEFAULT now(),
  -- The caller of the next run once that run is due; null if no run of the thread waits for a slot.
  next_caller_id uuid,
  PRIMARY KEY (deployment_id, thread_id)
-- Leaves free space on each page for new versions of its rows: updates that change no indexed column then write no
-- index.
) WITH (fillfactor = 80);
CREATE INDEX threads_by_metadata ON agents.threads USING gin (metadata jsonb_path_ops);
CREATE INDEX threads_by_time ON agents.threads (deployment_id, created_at DESC, thread_id) WHERE NOT hidden;
CREATE INDEX threads_expiring ON agents.threads (deployment_id, expires_at) WHERE expires_at IS NOT NULL;
-- Run slots are shared by the callers of a deployment: end users under custom authentication, otherwise API keys.
-- `threads_waiting` finds the waiting callers and the oldest run of each; the cost does not depend on the number of
-- waiting runs.
CREATE INDEX threads_waiting ON agents.threads (deployment_id, next_caller_id, next_due_at)
  WHERE next_caller_id IS NOT NULL;
CREATE INDEX threads_due_later ON agents.threads (deployment_id, next_due_at)
  WHERE next_due_at IS NOT NULL AND next_caller_id IS NULL;
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.threads
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();

-- Graph runs.
CREATE TABLE agents.runs (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  -- No foreign key: a run may outlive its thread until the end of its stream is in the log.
  thread_id uuid NOT NULL,
  run_id uuid NOT NULL,
  -- Order of creation, in which the runs of a thread are claimed if they are due at the same time.
  queue_position bigint GENERATED ALWAYS AS IDENTITY,
  assistant_id uuid NOT NULL,
  graph_id text NOT NULL,
  status text NOT NULL DEFAULT 'pending'
    CHECK (status IN ('pending', 'running', 'success', 'error', 'timeout', 'interrupted')),
  -- The request, with the field names of the wire.
  kwargs json NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  multitask_strategy text NOT NULL DEFAULT 'enqueue',
  -- Whether the hidden thread is deleted with the run (stateless, on_completion delete).
  temporary boolean NOT NULL DEFAULT false,
  due_at timestamptz NOT NULL DEFAULT now(),
  -- Starts so far; readers of the stream see this number.
  attempt integer NOT NULL DEFAULT 0,
  -- Attempts that ended without a result, by a lost lease or a killed worker; at most three.
  losses integer NOT NULL DEFAULT 0,
  -- Whether to execute the run alone in its worker. Set after a worker crashed while it executed this and other runs,
  -- and for the last attempt, so that the run that crashes the worker is identified.
  alone boolean NOT NULL DEFAULT false,
  -- The fencing token: every write of the run's state or outcome tests it.
  lease_token uuid,
  -- What a cancel requested while the run was running.
  cancel_action text CHECK (cancel_action IN ('interrupt', 'rollback')),
  -- The head of the thread when the run was first started; null: the thread had none.
  base_checkpoint_id text,
  -- `starts` of the thread at the last start.
  thread_start bigint NOT NULL DEFAULT 0,
  -- Rolled back or deleted: no longer visible, and deleted when its end is published.
  removed boolean NOT NULL DEFAULT false,
  -- The sender as traced runs name it: {workspaceId, userId, keyId}.
  sender json,
  error json,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  ended_at timestamptz,
  -- Whether the end of its stream is in the log. Null while the run has not ended.
  end_published boolean,
  -- The run ended while the log had accepted no events for too long: its stream has a gap before the end, which the
  -- end event reports.
  events_missing boolean NOT NULL DEFAULT false,
  -- The process that executes the run. It owns the run while its heartbeat is valid and `lease_token` is its token.
  process_id uuid,
  -- Expiry of a process's claim to publish the end of this run; null if unclaimed.
  end_claimed_until timestamptz,
  -- Null: a run of the deployment itself.
  caller_id uuid,
  PRIMARY KEY (deployment_id, run_id)
) WITH (fillfactor = 80);
-- Enforces at most one running run per thread.
CREATE UNIQUE INDEX runs_running ON agents.runs (deployment_id, thread_id) WHERE status = 'running';
CREATE INDEX runs_pending ON agents.runs (deployment_id, thread_id, due_at, queue_position) WHERE status = 'pending';
CREATE INDEX runs_without_end ON agents.runs (deployment_id, ended_at) WHERE end_published = false;
-- The next three do not begin with the deployment. Until the first ANALYZE, the planner treats indexes with that
-- prefix as equal and may read all runs each time a run ends.
CREATE INDEX runs_of_assistant ON agents.runs (assistant_id);
CREATE INDEX runs_of_thread ON agents.runs (thread_id, queue_position DESC);
CREATE UNIQUE INDEX runs_leased ON agents.runs (lease_token) WHERE status = 'running' AND lease_token IS NOT NULL;
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.runs
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();

-- Processes that execute runs. Each renews one heartbeat row, which no row of a run can block.
CREATE TABLE agents.processes (
  process_id uuid PRIMARY KEY,
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  -- After this time any other process may requeue the runs of this one.
  alive_until timestamptz NOT NULL
);

-- Final values and interrupts of a graph run that are too large for its end event, as the thread had them at that
-- moment: later runs replace those of the thread. Requests that wait for the run read them; they are deleted after
-- some minutes.
CREATE TABLE agents.final_values (
  deployment_id uuid NOT NULL,
  run_id uuid NOT NULL,
  values json,
  -- Null: the graph was not interrupted.
  interrupts json,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (deployment_id, run_id),
  FOREIGN KEY (deployment_id, run_id) REFERENCES agents.runs ON DELETE CASCADE
);
CREATE INDEX final_values_expire ON agents.final_values (deployment_id, expires_at);

-- Schedules of graph runs.
CREATE TABLE agents.crons (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  cron_id uuid NOT NULL,
  assistant_id uuid NOT NULL,
  -- Null: each run has a thread of its own.
  thread_id uuid,
  -- Five fields, interpreted in the time zone; null: UTC.
  schedule text NOT NULL,
  timezone text,
  end_time timestamptz,
  -- When the cron fires next; null: never again.
  next_run_date timestamptz,
  -- What happens to the thread of each run; null if the runs share one thread.
  on_run_completed text CHECK (on_run_completed IN ('delete', 'keep')),
  enabled boolean NOT NULL DEFAULT true,
  -- The request body of each run, with the field names of the wire.
  payload json NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  user_id text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (deployment_id, cron_id),
  FOREIGN KEY (deployment_id, assistant_id) REFERENCES agents.assistants ON DELETE CASCADE,
  FOREIGN KEY (deployment_id, thread_id) REFERENCES agents.threads ON DELETE CASCADE,
  CHECK ((thread_id IS NULL) = (on_run_completed IS NOT NULL))
);
CREATE INDEX crons_due ON agents.crons (next_run_date) WHERE enabled;
CREATE INDEX crons_of_assistant ON agents.crons (deployment_id, assistant_id);
CREATE INDEX crons_of_thread ON agents.crons (deployment_id, thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX crons_by_metadata ON agents.crons USING gin (metadata jsonb_path_ops);
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.crons
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();

-- Times for which a cron has fired, kept for a day: one time creates one run, even if the cron is moved back to it.
CREATE TABLE agents.cron_firings (
  deployment_id uuid NOT NULL,
  cron_id uuid NOT NULL,
  due_at timestamptz NOT NULL,
  -- Null: no run was created, because the thread was busy or something that the run needs no longer exists.
  run_id uuid,
  PRIMARY KEY (deployment_id, cron_id, due_at),
  FOREIGN KEY (deployment_id, cron_id) REFERENCES agents.crons ON DELETE CASCADE
);

-- One row for each ended run that names a webhook, until it is delivered, or for a day after Runlake gave up. The run
-- itself may be deleted.
CREATE TABLE agents.webhooks (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  run_id uuid NOT NULL,
  url text NOT NULL,
  -- The request body without the time of sending.
  body json NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- Time of the next attempt; during an attempt, when another process may take it over.
  due_at timestamptz NOT NULL DEFAULT now(),
  given_up_at timestamptz,
  -- Why the last attempt failed, as text for operators.
  last_error text,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (deployment_id, run_id)
);
CREATE INDEX webhooks_due ON agents.webhooks (due_at) WHERE given_up_at IS NULL;
CREATE INDEX webhooks_given_up ON agents.webhooks (given_up_at) WHERE given_up_at IS NOT NULL;
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.webhooks
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
