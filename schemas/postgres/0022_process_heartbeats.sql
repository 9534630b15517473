-- A process that executes runs renews one heartbeat row; no row of a run can block that. A run belongs to its process as long as the
-- process is alive and the token is that of the run. The token alone is the fence: every write of a run's state or outcome tests it.
CREATE TABLE agents.processes (
  process_id uuid PRIMARY KEY,
  deployment_id uuid NOT NULL REFERENCES agents.deployments,
  -- After this time the runs of the process may be requeued by any other one.
  alive_until timestamptz NOT NULL
);
ALTER TABLE agents.runs DROP COLUMN lease_until, ADD COLUMN process_id uuid;

DROP FUNCTION agents.lease_is_valid, agents.add_run, agents.claim_runs;

-- Whether state of the thread may be written under the token: the lease of its running run, or the hold of a request that writes
-- state. Locks the row until the transaction ends, so that nothing takes the run or the thread over before the commit. SECURITY
-- DEFINER: graph code can test a token that it has, but cannot read any.
CREATE FUNCTION agents.lease_is_valid(deployment uuid, thread uuid, token uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM FROM agents.runs
  WHERE deployment_id = deployment AND thread_id = thread AND status = 'running'
    AND lease_token = token
  FOR SHARE;
  IF FOUND THEN RETURN true; END IF;
  PERFORM FROM agents.threads
  WHERE deployment_id = deployment AND thread_id = thread AND write_token = token AND write_until > now()
  FOR SHARE;
  RETURN FOUND;
END $$;

-- Adds a run to a thread. `outcome` is 'made', or 'started' if a lease was asked for and the run need not wait. If nothing is written
-- it is 'thread-exists' (a thread was to be created), 'no-thread', 'not-yours' (the metadata of the thread does not contain
-- `required`), or 'going' (another run of the thread is pending or running and NOT `beside_others`).
CREATE FUNCTION agents.add_run(
  deployment uuid, thread uuid, make_thread text, required jsonb, first_metadata jsonb, about jsonb,
  first_ttl_minutes float8, first_ttl_strategy text, beside_others boolean,
  run uuid, assistant uuid, graph text, run_kwargs json, run_metadata jsonb, strategy text, is_temporary boolean,
  after_seconds float8, run_sender json, token uuid, process uuid
) RETURNS TABLE (outcome text, made_at timestamptz, start_number bigint, base text)
LANGUAGE plpgsql AS $$
DECLARE
  found_thread agents.threads;
  starts_now boolean := token IS NOT NULL AND after_seconds <= 0;
  others_go boolean := false;
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
      -- Another request may create it at the same time.
      INSERT INTO agents.threads (deployment_id, thread_id, metadata, ttl_minutes, ttl_strategy)
      VALUES (deployment, thread, first_metadata || about, first_ttl_minutes, first_ttl_strategy) ON CONFLICT DO NOTHING;
      SELECT * INTO found_thread FROM agents.threads WHERE deployment_id = deployment AND thread_id = thread FOR UPDATE;
    END IF;
    IF found_thread.thread_id IS NULL OR found_thread.hidden THEN outcome := 'no-thread'; RETURN NEXT; RETURN; END IF;
    IF NOT found_thread.metadata @> required THEN outcome := 'not-yours'; RETURN NEXT; RETURN; END IF;
    -- Two conditions, since each has a partial index of its own.
    others_go :=
      EXISTS (SELECT FROM agents.runs WHERE deployment_id = deployment AND thread_id = thread AND status = 'running')
      OR EXISTS (SELECT FROM agents.runs WHERE deployment_id = deployment AND thread_id = thread AND status = 'pending');
    IF others_go AND NOT beside_others THEN outcome := 'going'; RETURN NEXT; RETURN; END IF;
  END IF;
  -- Taken after the lock, so that runs of a thread are due in order of creation.
  made_at := clock_timestamp();
  IF starts_now AND NOT others_go AND coalesce(found_thread.write_until <= made_at, true) THEN
    outcome := 'started';
    base := (
      SELECT checkpoint_id FROM agents.checkpoints
      WHERE thread_id = deployment || ':' || thread AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1
    );
    UPDATE agents.threads SET
      starts = starts + 1,
      updated_at = made_at,
      expires_at = made_at + ttl_minutes * interval '1 minute',
      metadata = CASE WHEN metadata @> about THEN metadata ELSE metadata || about END,
      status = 'busy'
    WHERE deployment_id = deployment AND thread_id = thread
    RETURNING starts INTO start_number;
    INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
      temporary, due_at, sender, created_at, updated_at, started_at,
      status, attempt, lease_token, process_id, base_checkpoint_id, thread_start)
    VALUES (deployment, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
      is_temporary, made_at, run_sender, made_at, made_at, made_at,
      'running', 1, token, process, base, start_number);
  ELSE
    outcome := 'made';
    INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
      temporary, due_at, sender, created_at, updated_at)
    VALUES (deployment, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
      is_temporary, made_at + after_seconds * interval '1 second', run_sender, made_at, made_at);
    PERFORM agents.update_thread_status(deployment, thread, about);
    PERFORM pg_notify('agent_runs', deployment::text);
  END IF;
  RETURN NEXT;
END $$;

-- Starts the first pending run of each of the threads that have waited longest, skipping locked threads. Postgres evaluates the
-- condition again after it has locked a row (`next_due_at` changes under that lock), and the runs are read after all locks are held.
-- The index holds only threads with a pending run, so the cost does not grow with ended runs.
CREATE FUNCTION agents.claim_runs(deployment uuid, slots integer, process uuid) RETURNS SETOF agents.runs
LANGUAGE plpgsql AS $$
DECLARE
  heads uuid[];
BEGIN
  heads := ARRAY(
    SELECT thread_id FROM agents.threads
    WHERE deployment_id = deployment AND next_due_at <= clock_timestamp()
      AND (write_until IS NULL OR write_until <= clock_timestamp())
    ORDER BY next_due_at
    LIMIT slots
    FOR UPDATE SKIP LOCKED
  );
  IF cardinality(heads) = 0 THEN RETURN; END IF;
  RETURN QUERY
  WITH started AS (
    UPDATE agents.threads SET starts = starts + 1, next_due_at = NULL
    WHERE deployment_id = deployment AND thread_id = ANY (heads)
    RETURNING deployment_id, thread_id, starts
  )
  UPDATE agents.runs run SET
    status = 'running',
    attempt = run.attempt + 1,
    thread_start = started.starts,
    lease_token = gen_random_uuid(),
    process_id = process,
    started_at = coalesce(run.started_at, clock_timestamp()),
    updated_at = clock_timestamp(),
    base_checkpoint_id = CASE WHEN run.attempt > 0 THEN run.base_checkpoint_id ELSE (
      SELECT checkpoint_id FROM agents.checkpoints checkpoint
      WHERE checkpoint.thread_id = run.deployment_id || ':' || run.thread_id AND checkpoint.checkpoint_ns = ''
      ORDER BY checkpoint_id DESC LIMIT 1
    ) END
  FROM started CROSS JOIN LATERAL (
    SELECT run_id FROM agents.runs waiting
    WHERE waiting.deployment_id = started.deployment_id AND waiting.thread_id = started.thread_id
      AND waiting.status = 'pending'
    ORDER BY due_at, queue_position LIMIT 1
  ) head
  WHERE run.deployment_id = started.deployment_id AND run.run_id = head.run_id
  RETURNING run.*;
END $$;
