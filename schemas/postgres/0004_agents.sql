-- The agent server. Its tables are in a schema of their own, so that the account of processes that run graph code can
-- be limited to some of them. JSON from graphs and clients has the type `json` and is stored as received, because
-- `jsonb` does not accept NUL characters. Columns that are searched by containment have the type `jsonb`.
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
  -- Set by the deletion of a workspace before it deletes rows. From then on no row can be added to the deployment.
  closed_at timestamptz
);

-- Refuses rows of a closed deployment. The foreign key of a new row locks the row of the deployment FOR KEY SHARE. The
-- deletion of a workspace sets `closed_at` under FOR UPDATE, so it waits for transactions that have already added rows.
-- Postgres fires the triggers of an event in the order of their names, so this trigger fires after those of foreign
-- keys and sees the `closed_at` of a deletion that did not wait. The function is SECURITY DEFINER because graph code
-- stores items but cannot read deployments.
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
  -- Whether this is the thread of a temporary run: never returned to clients, and deleted with the run.
  hidden boolean NOT NULL DEFAULT false,
  status text NOT NULL DEFAULT 'idle' CHECK (status IN ('idle', 'busy', 'interrupted', 'error')),
  -- The status of the thread while no run is pending or running.
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
  -- When the first pending run is due; null if no run is pending or a run is running.
  next_due_at timestamptz,
  -- Number of run starts and state updates so far. The sequence number of an event in the thread is the number of its
  -- start times 2^32, plus its number in the attempt.
  starts bigint NOT NULL DEFAULT 0,
  -- Write lease for a state update outside a run. Until `write_until`, no run of the thread is claimed, and the saver
  -- of the update writes only with this token.
  write_token uuid,
  write_until timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  state_updated_at timestamptz NOT NULL DEFAULT now(),
  -- The caller of the next run once that run is due; null if no run of the thread waits for a slot.
  next_caller_id uuid,
  PRIMARY KEY (deployment_id, thread_id)
-- Leaves free space on each page for new versions of its rows, so that updates that change no indexed column need not
-- write to indexes.
) WITH (fillfactor = 80);
CREATE INDEX threads_by_metadata ON agents.threads USING gin (metadata jsonb_path_ops);
CREATE INDEX threads_by_time ON agents.threads (deployment_id, created_at DESC, thread_id) WHERE NOT hidden;
CREATE INDEX threads_expiring ON agents.threads (deployment_id, expires_at) WHERE expires_at IS NOT NULL;
-- The callers of a deployment share its run slots. A caller is an end user under custom authentication, otherwise an
-- API key. `threads_waiting` finds the waiting callers and the oldest run of each caller. Its cost does not depend on
-- the number of waiting runs.
CREATE INDEX threads_waiting ON agents.threads (deployment_id, next_caller_id, next_due_at)
  WHERE next_caller_id IS NOT NULL;
CREATE INDEX threads_due_later ON agents.threads (deployment_id, next_due_at)
  WHERE next_due_at IS NOT NULL AND next_caller_id IS NULL;
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.threads
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();

-- Graph runs.
CREATE TABLE agents.runs (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  -- No foreign key, because a run remains after the deletion of its thread until the end of its stream is in the log.
  thread_id uuid NOT NULL,
  run_id uuid NOT NULL,
  -- Order of creation. Runs of a thread that are due at the same time are claimed in this order.
  queue_position bigint GENERATED ALWAYS AS IDENTITY,
  assistant_id uuid NOT NULL,
  graph_id text NOT NULL,
  status text NOT NULL DEFAULT 'pending'
    CHECK (status IN ('pending', 'running', 'success', 'error', 'timeout', 'interrupted')),
  -- The request, with its field names on the wire.
  kwargs json NOT NULL,
  metadata jsonb NOT NULL DEFAULT '{}',
  multitask_strategy text NOT NULL DEFAULT 'enqueue',
  -- Whether the hidden thread is deleted with the run (stateless, on_completion delete).
  temporary boolean NOT NULL DEFAULT false,
  due_at timestamptz NOT NULL DEFAULT now(),
  -- Number of starts so far. Readers of the stream see this number.
  attempt integer NOT NULL DEFAULT 0,
  -- Number of attempts that ended without a result because the lease was lost or the worker was killed; at most three.
  losses integer NOT NULL DEFAULT 0,
  -- Whether to execute the run alone in its worker. Set after a worker crashed while it executed this run and others,
  -- and for the last attempt, so that the run that crashes the worker is identified.
  alone boolean NOT NULL DEFAULT false,
  -- The fencing token. Every write of the run's state or outcome checks it.
  lease_token uuid,
  -- The action that a cancel requested while the run was running.
  cancel_action text CHECK (cancel_action IN ('interrupt', 'rollback')),
  -- The head of the thread when the run was first started; null if the thread had no checkpoint.
  base_checkpoint_id text,
  -- `starts` of the thread at the last start of the run.
  thread_start bigint NOT NULL DEFAULT 0,
  -- Whether the run was rolled back or deleted. Clients no longer see it, and its row is deleted after its end is
  -- published.
  removed boolean NOT NULL DEFAULT false,
  -- The sender, in the form of traced runs: {workspaceId, userId, keyId}.
  sender json,
  error json,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  ended_at timestamptz,
  -- Whether the end of the run's stream is in the log; null while the run has not ended.
  end_published boolean,
  -- Number of executed nodes as the worker reported it; null if the worker ended without a report.
  nodes_executed bigint,
  -- Whether the run ended after the log had accepted no events for too long. Its stream then has a gap before the end,
  -- which the end event reports.
  events_missing boolean NOT NULL DEFAULT false,
  -- The process that executes the run. It owns the run while its heartbeat is valid and `lease_token` is its token.
  process_id uuid,
  -- When the claim of a process to publish the end of this run expires; null if no process has claimed it.
  end_claimed_until timestamptz,
  -- The caller whose run slots the run uses; null if this is the deployment itself.
  caller_id uuid,
  PRIMARY KEY (deployment_id, run_id)
) WITH (fillfactor = 80);
-- Enforces at most one running run per thread.
CREATE UNIQUE INDEX runs_running ON agents.runs (deployment_id, thread_id) WHERE status = 'running';
CREATE INDEX runs_pending ON agents.runs (deployment_id, thread_id, due_at, queue_position) WHERE status = 'pending';
CREATE INDEX runs_without_end ON agents.runs (deployment_id, ended_at) WHERE end_published = false;
-- The next three indexes do not begin with the deployment. Until the first ANALYZE, the planner treats all indexes that
-- begin with it as equal and may read all runs each time a run ends.
CREATE INDEX runs_of_assistant ON agents.runs (assistant_id);
CREATE INDEX runs_of_thread ON agents.runs (thread_id, queue_position DESC);
CREATE UNIQUE INDEX runs_leased ON agents.runs (lease_token) WHERE status = 'running' AND lease_token IS NOT NULL;
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.runs
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();

-- Processes that execute runs. Each process renews its heartbeat in one row, so locks on runs cannot delay the renewal.
CREATE TABLE agents.processes (
  process_id uuid PRIMARY KEY,
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  -- After this time, any other process may requeue the runs of this process.
  alive_until timestamptz NOT NULL
);

-- Final values and interrupts of a graph run that are too large for its end event. They are a copy of those of the
-- thread, because later runs replace the values of the thread. Requests that wait for the run read the copy, which is
-- deleted after some minutes.
CREATE TABLE agents.final_values (
  deployment_id uuid NOT NULL,
  run_id uuid NOT NULL,
  values json,
  -- Null if the graph was not interrupted.
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
  -- The thread of all runs; null if each run has a thread of its own.
  thread_id uuid,
  -- A cron expression of five fields in the time zone `timezone`; UTC if `timezone` is null.
  schedule text NOT NULL,
  timezone text,
  end_time timestamptz,
  -- When the cron fires next; null if it does not fire again.
  next_run_date timestamptz,
  -- What happens to the thread of each run; null if the runs share one thread.
  on_run_completed text CHECK (on_run_completed IN ('delete', 'keep')),
  enabled boolean NOT NULL DEFAULT true,
  -- The request body of each run, with its field names on the wire.
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

-- Fire times of a cron for which it has fired. They are kept for a day, so that a fire time creates only one run even
-- if the next fire time of the cron is moved back to it.
CREATE TABLE agents.cron_firings (
  deployment_id uuid NOT NULL,
  cron_id uuid NOT NULL,
  due_at timestamptz NOT NULL,
  -- Null if no run was created, because the thread was busy or something that the run needs no longer exists.
  run_id uuid,
  PRIMARY KEY (deployment_id, cron_id, due_at),
  FOREIGN KEY (deployment_id, cron_id) REFERENCES agents.crons ON DELETE CASCADE
);

-- One row for each ended run that names a webhook. The row remains until the webhook is delivered, or for a day after
-- Runlake gave up. The run itself may be deleted earlier.
CREATE TABLE agents.webhooks (
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  run_id uuid NOT NULL,
  url text NOT NULL,
  -- The request body without the time of sending.
  body json NOT NULL,
  attempts integer NOT NULL DEFAULT 0,
  -- Time of the next attempt. During an attempt, the time after which another process may claim the webhook.
  due_at timestamptz NOT NULL DEFAULT now(),
  given_up_at timestamptz,
  -- The reason why the last attempt failed, as text for operators.
  last_error text,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (deployment_id, run_id)
);
CREATE INDEX webhooks_due ON agents.webhooks (due_at) WHERE given_up_at IS NULL;
CREATE INDEX webhooks_given_up ON agents.webhooks (given_up_at) WHERE given_up_at IS NOT NULL;
CREATE TRIGGER require_open_deployment AFTER INSERT ON agents.webhooks
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
