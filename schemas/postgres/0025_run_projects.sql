-- The tracing project of a run in a column of its own. The operators of `json` decode the whole document and throw if it
-- contains a NUL character or a lone surrogate, so a trigger that reads `kwargs` could prevent the end of a run.
ALTER TABLE agents.runs ADD COLUMN IF NOT EXISTS project_name text;
-- Usage of unfinished runs with escaped characters counts for the graph.
UPDATE agents.runs SET project_name = kwargs -> 'langsmith_tracer' ->> 'project_name'
WHERE status IN ('pending', 'running') AND project_name IS NULL AND kwargs::text NOT LIKE '%\\u%';

-- As in 0006, with the tracing project of the run; null if it is that of the graph.
DROP FUNCTION IF EXISTS agents.add_run(
  uuid, uuid, text, jsonb, jsonb, jsonb, float8, text, boolean, uuid, uuid, text, json, jsonb, text, boolean, float8, json, uuid
);
CREATE OR REPLACE FUNCTION agents.add_run(
  deployment uuid, thread uuid, make_thread text, required jsonb, first_metadata jsonb, about jsonb,
  first_ttl_minutes float8, first_ttl_strategy text, beside_others boolean,
  run uuid, assistant uuid, graph text, run_kwargs json, run_metadata jsonb, strategy text, is_temporary boolean,
  after_seconds float8, run_sender json, caller uuid, project text DEFAULT NULL
) RETURNS TABLE (outcome text, made_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
  found_thread agents.threads;
BEGIN
  IF make_thread = 'own' THEN
    INSERT INTO agents.threads (deployment_id, thread_id, hidden, metadata, ttl_minutes, ttl_strategy)
    VALUES (deployment, thread, is_temporary, first_metadata || about, first_ttl_minutes, first_ttl_strategy)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN outcome := 'thread-exists'; RETURN NEXT; RETURN; END IF;
  ELSE
    SELECT * INTO found_thread FROM agents.threads WHERE deployment_id = deployment AND thread_id = thread FOR UPDATE;
    IF NOT FOUND AND make_thread = 'where-missing' THEN
      IF NOT (first_metadata || about) @> required THEN outcome := 'not-yours'; RETURN NEXT; RETURN; END IF;
      -- Another request may create the thread at the same time.
      INSERT INTO agents.threads (deployment_id, thread_id, metadata, ttl_minutes, ttl_strategy)
      VALUES (deployment, thread, first_metadata || about, first_ttl_minutes, first_ttl_strategy) ON CONFLICT DO NOTHING;
      SELECT * INTO found_thread FROM agents.threads WHERE deployment_id = deployment AND thread_id = thread FOR UPDATE;
    END IF;
    IF found_thread.thread_id IS NULL OR found_thread.hidden THEN outcome := 'no-thread'; RETURN NEXT; RETURN; END IF;
    IF NOT found_thread.metadata @> required THEN outcome := 'not-yours'; RETURN NEXT; RETURN; END IF;
    -- Use two conditions, because each has a partial index of its own.
    IF NOT beside_others AND (
      EXISTS (SELECT FROM agents.runs WHERE deployment_id = deployment AND thread_id = thread AND status = 'running')
      OR EXISTS (SELECT FROM agents.runs WHERE deployment_id = deployment AND thread_id = thread AND status = 'pending')
    ) THEN outcome := 'going'; RETURN NEXT; RETURN; END IF;
  END IF;
  -- Read the clock after the lock, so that runs of a thread are due in the order of their creation.
  made_at := clock_timestamp();
  outcome := 'made';
  INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
    temporary, due_at, sender, created_at, updated_at, caller_id, project_name)
  VALUES (deployment, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
    is_temporary, made_at + after_seconds * interval '1 second', run_sender, made_at, made_at, caller, project);
  PERFORM agents.update_thread_status(deployment, thread, about);
  PERFORM pg_notify('agent_runs', deployment::text);
  RETURN NEXT;
END $$;

-- As in 0016. Cuts long names, because an entry of an index has at most 2,704 bytes, and an error would prevent the end of
-- the run.
CREATE OR REPLACE FUNCTION agents.add_usage(
  deployment uuid, at_time timestamptz, project text, sender_user uuid, sender_key uuid,
  runs bigint, nodes bigint, seconds bigint
) RETURNS void
LANGUAGE sql AS $$
  INSERT INTO agents.usage_hourly AS usage (workspace_id, hour, deployment_id, project_name, user_id, key_id, shard,
    agent_runs, nodes_executed, uptime_seconds)
  SELECT workspace_id, date_trunc('hour', at_time, 'UTC'), deployment, left(coalesce(project, name), 512),
    coalesce(sender_user, '00000000-0000-0000-0000-000000000000'), coalesce(sender_key, '00000000-0000-0000-0000-000000000000'),
    pg_backend_pid() % 16, runs, nodes, seconds
  FROM agents.deployments WHERE deployment_id = deployment
  ON CONFLICT (workspace_id, hour, deployment_id, project_name, user_id, key_id, shard) DO UPDATE SET
    agent_runs = usage.agent_runs + excluded.agent_runs,
    nodes_executed = usage.nodes_executed + excluded.nodes_executed,
    uptime_seconds = usage.uptime_seconds + excluded.uptime_seconds
$$;

-- As in 0016, with the column for the project.
CREATE OR REPLACE FUNCTION agents.count_run() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM agents.add_usage(NEW.deployment_id, coalesce(NEW.ended_at, clock_timestamp()),
    coalesce(NEW.project_name, NEW.graph_id),
    (NEW.sender ->> 'userId')::uuid, (NEW.sender ->> 'keyId')::uuid, 1,
    coalesce(NEW.nodes_executed, agents.count_stored_nodes(NEW.deployment_id, NEW.thread_id, NEW.run_id)), 0);
  RETURN NULL;
END $$;
