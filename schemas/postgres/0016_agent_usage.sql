-- Usage of agent servers: the basis of granular usage with `kind=langsmith_deployments`. A graph run counts once, in the
-- hour of its end, in the transaction that ends it. The rows stay when runs, threads, deployments or workspaces are deleted.
CREATE TABLE IF NOT EXISTS agents.usage_hourly (
  workspace_id uuid NOT NULL,
  hour timestamptz NOT NULL,
  deployment_id uuid NOT NULL,
  -- Name of the tracing project of the runs; of uptime, the name of the deployment.
  project_name text NOT NULL,
  -- Sender of the runs; the nil UUID if there is none.
  user_id uuid NOT NULL,
  key_id uuid NOT NULL,
  -- Connections add to different rows, so that their transactions do not wait for each other.
  shard smallint NOT NULL,
  agent_runs bigint NOT NULL DEFAULT 0,
  nodes_executed bigint NOT NULL DEFAULT 0,
  uptime_seconds bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (workspace_id, hour, deployment_id, project_name, user_id, key_id, shard)
);

-- The time until which the uptime of a deployment is counted, in whole seconds.
CREATE TABLE IF NOT EXISTS agents.uptime (
  deployment_id uuid PRIMARY KEY REFERENCES agents.deployments ON DELETE CASCADE,
  counted_until timestamptz NOT NULL
);

-- Adds to the usage of a deployment in the hour of `at_time`.
CREATE OR REPLACE FUNCTION agents.add_usage(
  deployment uuid, at_time timestamptz, project text, sender_user uuid, sender_key uuid,
  runs bigint, nodes bigint, seconds bigint
) RETURNS void
LANGUAGE sql AS $$
  INSERT INTO agents.usage_hourly AS usage (workspace_id, hour, deployment_id, project_name, user_id, key_id, shard,
    agent_runs, nodes_executed, uptime_seconds)
  SELECT workspace_id, date_trunc('hour', at_time, 'UTC'), deployment, coalesce(project, name),
    coalesce(sender_user, '00000000-0000-0000-0000-000000000000'), coalesce(sender_key, '00000000-0000-0000-0000-000000000000'),
    pg_backend_pid() % 16, runs, nodes, seconds
  FROM agents.deployments WHERE deployment_id = deployment
  ON CONFLICT (workspace_id, hour, deployment_id, project_name, user_id, key_id, shard) DO UPDATE SET
    agent_runs = usage.agent_runs + excluded.agent_runs,
    nodes_executed = usage.nodes_executed + excluded.nodes_executed,
    uptime_seconds = usage.uptime_seconds + excluded.uptime_seconds
$$;

-- Counts the uptime of a deployment until now. Its processes call it with each heartbeat. Time counts once, however many
-- processes a deployment has; a gap that is longer than `max_gap` does not count.
CREATE OR REPLACE FUNCTION agents.count_uptime(deployment uuid, max_gap interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  until timestamptz := date_trunc('second', clock_timestamp());
  since timestamptz;
  turn timestamptz;
BEGIN
  INSERT INTO agents.uptime (deployment_id, counted_until) VALUES (deployment, until) ON CONFLICT DO NOTHING;
  SELECT counted_until INTO since FROM agents.uptime WHERE deployment_id = deployment FOR UPDATE SKIP LOCKED;
  -- If another process is counting at this moment, nothing is left to count.
  IF since IS NULL OR since >= until THEN RETURN; END IF;
  UPDATE agents.uptime SET counted_until = until WHERE deployment_id = deployment;
  IF until - since > max_gap THEN RETURN; END IF;
  -- `max_gap` is below an hour, so the hour turns at most once.
  turn := date_trunc('hour', until, 'UTC');
  IF since < turn THEN
    PERFORM agents.add_usage(deployment, since, NULL, NULL, NULL, 0, 0, extract(epoch FROM turn - since)::bigint);
    since := turn;
  END IF;
  IF since < until THEN
    PERFORM agents.add_usage(deployment, until, NULL, NULL, NULL, 0, 0, extract(epoch FROM until - since)::bigint);
  END IF;
END $$;

-- Number of executed nodes as the worker reported it; null if the worker ended without a report.
ALTER TABLE agents.runs ADD COLUMN IF NOT EXISTS nodes_executed bigint;

-- The number of nodes that a run has executed and whose results are stored. Writes without a task have the nil UUID. The
-- task that copies the input of a graph to its first nodes is not a node.
CREATE OR REPLACE FUNCTION agents.count_stored_nodes(deployment uuid, thread uuid, run uuid) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT count(*) FROM (
    SELECT checkpoint_ns AS ns, checkpoint_id AS id, bool_or(channel LIKE 'branch:to:%') AS enters
    FROM agents.checkpoint_writes
    WHERE thread_id = deployment || ':' || thread AND run_id = run::text
      AND task_id <> '00000000-0000-0000-0000-000000000000' AND channel NOT IN ('__resume__', '__error__')
    GROUP BY checkpoint_ns, checkpoint_id, task_id) AS task
  WHERE NOT (enters AND EXISTS (
    SELECT FROM agents.checkpoints WHERE thread_id = deployment || ':' || thread AND checkpoint_ns = ns
      AND checkpoint_id = id AND metadata ->> 'source' = 'input'))
$$;

-- Counts the usage of a run that ends. Without a report of the worker, the nodes whose results are stored count; a node
-- whose result was lost is executed again. The trigger fires before a rollback or a deletion removes the results.
CREATE OR REPLACE FUNCTION agents.count_run() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM agents.add_usage(NEW.deployment_id, coalesce(NEW.ended_at, clock_timestamp()),
    coalesce(NEW.kwargs -> 'langsmith_tracer' ->> 'project_name', NEW.graph_id),
    (NEW.sender ->> 'userId')::uuid, (NEW.sender ->> 'keyId')::uuid, 1,
    coalesce(NEW.nodes_executed, agents.count_stored_nodes(NEW.deployment_id, NEW.thread_id, NEW.run_id)), 0);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER count_run AFTER UPDATE OF status ON agents.runs FOR EACH ROW
WHEN (OLD.status IN ('pending', 'running') AND NEW.status NOT IN ('pending', 'running') AND NEW.attempt > 0)
EXECUTE FUNCTION agents.count_run();

-- As before, with the number of executed nodes.
DROP FUNCTION IF EXISTS agents.end_run(uuid, uuid, uuid, uuid, text, json, text, json, jsonb, json, boolean);
CREATE OR REPLACE FUNCTION agents.end_run(
  deployment uuid, thread uuid, run uuid, token uuid, outcome text, failure json,
  resting text, state json, searchable jsonb, waiting_for json, is_incomplete boolean, nodes bigint
) RETURNS SETOF agents.runs
LANGUAGE plpgsql AS $$
DECLARE
  ended agents.runs;
  roll_back boolean;
  first_due timestamptz;
  first_caller uuid;
  ended_at_time timestamptz;
BEGIN
  PERFORM FROM agents.threads WHERE deployment_id = deployment AND thread_id = thread FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  ended_at_time := clock_timestamp();
  UPDATE agents.runs SET
    status = CASE
      WHEN cancel_action = 'rollback' OR (cancel_action = 'interrupt' AND outcome = 'success') THEN 'interrupted'
      ELSE outcome
    END,
    error = CASE WHEN cancel_action = 'rollback' THEN NULL ELSE failure END,
    removed = coalesce(cancel_action = 'rollback', false),
    events_missing = is_incomplete,
    nodes_executed = nodes,
    ended_at = ended_at_time, updated_at = ended_at_time, end_published = false
  WHERE deployment_id = deployment AND thread_id = thread AND run_id = run AND lease_token = token AND status = 'running'
  RETURNING * INTO ended;
  IF NOT FOUND THEN RETURN; END IF;
  roll_back := ended.removed;
  IF roll_back THEN PERFORM agents.rollback_checkpoints(deployment || ':' || thread, run::text); END IF;
  SELECT due, caller INTO first_due, first_caller FROM agents.next_of_thread(deployment, thread);
  UPDATE agents.threads SET
    rest_status = CASE WHEN roll_back THEN rest_status ELSE resting END,
    status = CASE WHEN first_due IS NOT NULL THEN 'busy' WHEN roll_back THEN rest_status ELSE resting END,
    values = CASE WHEN roll_back THEN values ELSE coalesce(state, values) END,
    searchable_values = CASE WHEN roll_back OR state IS NULL THEN searchable_values ELSE searchable END,
    interrupts = CASE WHEN roll_back THEN interrupts ELSE coalesce(waiting_for, interrupts) END,
    error = CASE WHEN roll_back THEN error ELSE failure END,
    state_updated_at = CASE WHEN roll_back THEN state_updated_at ELSE ended_at_time END,
    updated_at = ended_at_time,
    expires_at = ended_at_time + ttl_minutes * interval '1 minute',
    next_due_at = first_due,
    next_caller_id = first_caller
  WHERE deployment_id = deployment AND thread_id = thread;
  IF first_due IS NOT NULL THEN PERFORM pg_notify('agent_runs', deployment::text); END IF;
  RETURN NEXT ended;
END $$;
