-- Config that the thread had when the run was added, for a run that is undone: rolled back, or ended before it started.
-- Null if the run set no config, or was undone.
ALTER TABLE agents.runs ADD COLUMN IF NOT EXISTS config_before json;

-- As in 0025. Also sets the config of the thread to `thread_config`, unless that is null.
DROP FUNCTION IF EXISTS agents.add_run(
  uuid, uuid, text, jsonb, jsonb, jsonb, float8, text, boolean, uuid, uuid, text, json, jsonb, text, boolean, float8, json, uuid, text
);
CREATE OR REPLACE FUNCTION agents.add_run(
  deployment uuid, thread uuid, make_thread text, required jsonb, first_metadata jsonb, about jsonb,
  first_ttl_minutes float8, first_ttl_strategy text, beside_others boolean,
  run uuid, assistant uuid, graph text, run_kwargs json, run_metadata jsonb, strategy text, is_temporary boolean,
  after_seconds float8, run_sender json, caller uuid, project text DEFAULT NULL, thread_config json DEFAULT NULL
) RETURNS TABLE (outcome text, made_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
  found_thread agents.threads;
  former_config json;
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
  IF thread_config IS NOT NULL THEN
    former_config := coalesce(found_thread.config, '{}');
    UPDATE agents.threads SET config = thread_config
    WHERE deployment_id = deployment AND thread_id = thread AND config::text <> thread_config::text;
  END IF;
  INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
    temporary, due_at, sender, created_at, updated_at, caller_id, project_name, config_before)
  VALUES (deployment, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
    is_temporary, made_at + after_seconds * interval '1 second', run_sender, made_at, made_at, caller, project,
    former_config);
  PERFORM agents.update_thread_status(deployment, thread, about);
  PERFORM pg_notify('agent_runs', deployment::text);
  RETURN NEXT;
END $$;

-- Gives the thread its former config. If another run set its config afterwards, that run gets the former config instead.
-- A statement can undo several runs of a thread; then `config_before` of those for which this function was not called
-- yet is set.
CREATE OR REPLACE FUNCTION agents.restore_config_before() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  former json;
BEGIN
  SELECT config_before INTO former FROM agents.runs WHERE deployment_id = NEW.deployment_id AND run_id = NEW.run_id;
  UPDATE agents.runs SET config_before = NULL WHERE deployment_id = NEW.deployment_id AND run_id = NEW.run_id;
  UPDATE agents.runs SET config_before = former
  WHERE deployment_id = NEW.deployment_id AND run_id = (
    SELECT run_id FROM agents.runs later
    WHERE deployment_id = NEW.deployment_id AND thread_id = NEW.thread_id AND queue_position > NEW.queue_position
      AND config_before IS NOT NULL
    ORDER BY queue_position LIMIT 1
  );
  IF FOUND THEN RETURN NULL; END IF;
  UPDATE agents.threads SET config = former WHERE deployment_id = NEW.deployment_id AND thread_id = NEW.thread_id;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER restore_config_before AFTER UPDATE OF status ON agents.runs FOR EACH ROW
WHEN (NEW.config_before IS NOT NULL AND OLD.status IN ('pending', 'running')
  AND NEW.status NOT IN ('pending', 'running') AND (NEW.removed OR NEW.attempt = 0))
EXECUTE FUNCTION agents.restore_config_before();
