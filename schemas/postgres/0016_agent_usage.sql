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
