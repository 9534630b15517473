-- Transitions of graph runs and their threads. Each transition is one function call, because a round trip per statement
-- would cost more than the statements do. A call outside of a transaction is one transaction. Each statement in a
-- function sees what was committed before that statement began, so reads after the lock of the thread are current.
-- Except for `lease_is_valid`, the functions run with the privileges of the caller. The payload of a NOTIFY is the id
-- of the deployment. The functions notify only if a process has to look at the thread, because transactions that NOTIFY
-- commit one after the other.

-- Whether the token allows writes to the state of the thread. It must be the lease of the thread's running run, or the
-- write lease of a state update. Locks the row with the token until the transaction ends, so that no other process
-- takes over the run or the thread before the commit. The function is SECURITY DEFINER so that graph code can check a
-- token that it has but cannot read tokens.
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

-- Returns when the first pending run of a thread is due and, if it is already due, its caller. The caller of a run
-- without `caller_id` is the deployment itself. Returns nulls if no run is pending.
CREATE FUNCTION agents.next_of_thread(deployment uuid, thread uuid, OUT due timestamptz, OUT caller uuid)
LANGUAGE plpgsql AS $$
BEGIN
  SELECT due_at, CASE WHEN due_at <= clock_timestamp() THEN coalesce(caller_id, deployment_id) END INTO due, caller
  FROM agents.runs WHERE deployment_id = deployment AND thread_id = thread AND status = 'pending'
  ORDER BY due_at, queue_position LIMIT 1;
END $$;

-- Recomputes the row of a thread from its runs: the status, which is `busy` while a run is pending or running, the due
-- time of the next run and its caller. Also merges `about` into the metadata of the thread and restarts its TTL. Call
-- it last under the lock of the thread.
CREATE FUNCTION agents.update_thread_status(deployment uuid, thread uuid, about jsonb DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  any_running boolean := EXISTS (
    SELECT FROM agents.runs WHERE deployment_id = deployment AND thread_id = thread AND status = 'running'
  );
  first_due timestamptz;
  first_caller uuid;
BEGIN
  SELECT due, caller INTO first_due, first_caller FROM agents.next_of_thread(deployment, thread);
  UPDATE agents.threads SET
    updated_at = clock_timestamp(),
    expires_at = clock_timestamp() + ttl_minutes * interval '1 minute',
    metadata = CASE WHEN metadata @> about THEN metadata ELSE metadata || about END,
    status = CASE WHEN any_running OR first_due IS NOT NULL THEN 'busy' ELSE rest_status END,
    next_due_at = CASE WHEN any_running THEN NULL ELSE first_due END,
    next_caller_id = CASE WHEN any_running THEN NULL ELSE first_caller END
  WHERE deployment_id = deployment AND thread_id = thread;
END $$;

-- Adds a pending run to a thread. `outcome` is 'made'; if no run is added, it is 'thread-exists' (a thread was to be
-- created), 'no-thread', 'not-yours' (the metadata of the thread does not contain `required`), or 'going' (another run of
-- the thread is pending or running and NOT `beside_others`).
CREATE FUNCTION agents.add_run(
  deployment uuid, thread uuid, make_thread text, required jsonb, first_metadata jsonb, about jsonb,
  first_ttl_minutes float8, first_ttl_strategy text, beside_others boolean,
  run uuid, assistant uuid, graph text, run_kwargs json, run_metadata jsonb, strategy text, is_temporary boolean,
  after_seconds float8, run_sender json, caller uuid
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
    temporary, due_at, sender, created_at, updated_at, caller_id)
  VALUES (deployment, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
    is_temporary, made_at + after_seconds * interval '1 second', run_sender, made_at, made_at, caller);
  PERFORM agents.update_thread_status(deployment, thread, about);
  PERFORM pg_notify('agent_runs', deployment::text);
  RETURN NEXT;
END $$;

-- Returns up to `max_callers` callers with a run that is due. If more callers wait, returns those that follow a random
-- id.
CREATE FUNCTION agents.waiting_callers(deployment uuid, max_callers integer) RETURNS uuid[]
LANGUAGE plpgsql AS $$
DECLARE
  found_callers uuid[] := '{}';
  first_from uuid := gen_random_uuid();
  next_from uuid := first_from;
  found_caller uuid;
BEGIN
  WHILE cardinality(found_callers) < max_callers LOOP
    SELECT next_caller_id INTO found_caller FROM agents.threads
    WHERE deployment_id = deployment AND next_caller_id > next_from ORDER BY next_caller_id LIMIT 1;
    -- After the highest id, continue at the lowest id. The nil UUID is the id of the operator.
    IF NOT FOUND AND next_from >= first_from THEN
      SELECT next_caller_id INTO found_caller FROM agents.threads
      WHERE deployment_id = deployment AND next_caller_id IS NOT NULL ORDER BY next_caller_id LIMIT 1;
    END IF;
    EXIT WHEN found_caller IS NULL OR (found_caller > first_from AND next_from < first_from) OR found_caller = ANY (found_callers);
    found_callers := found_callers || found_caller;
    next_from := found_caller;
  END LOOP;
  RETURN found_callers;
END $$;

-- Starts the first pending runs of threads. The next run to start is the oldest run of the caller with the fewest
-- running runs in all processes. `slots` are for all callers. `extra_slots` are for callers with fewer running runs
-- than their share, so that they need not wait for long runs of others. A share is the number of running runs divided
-- by the number of callers that have a running run or wait for one. Skips locked threads. After Postgres has locked a
-- thread, it evaluates the condition again (`next_caller_id` changes only under that lock). The runs are read after all
-- locks are held.
CREATE FUNCTION agents.claim_runs(deployment uuid, slots integer, extra_slots integer, process uuid)
RETURNS SETOF agents.runs
LANGUAGE plpgsql AS $$
DECLARE
  -- A variable, because an index cannot be used for a condition with the volatile `clock_timestamp()`.
  claimed_at timestamptz := clock_timestamp();
  heads uuid[];
  callers uuid[];
BEGIN
  heads := ARRAY(
    SELECT thread_id FROM agents.threads
    WHERE deployment_id = deployment AND next_due_at <= claimed_at AND next_caller_id IS NULL
    ORDER BY next_due_at LIMIT 1000 FOR UPDATE SKIP LOCKED
  );
  IF cardinality(heads) > 0 THEN
    UPDATE agents.threads SET next_caller_id = (SELECT caller FROM agents.next_of_thread(deployment, thread_id))
    WHERE deployment_id = deployment AND thread_id = ANY (heads);
  END IF;

  callers := agents.waiting_callers(deployment, 50);
  IF cardinality(callers) = 0 THEN RETURN; END IF;
  heads := ARRAY(
    WITH running AS (
      SELECT coalesce(caller_id, deployment_id) AS caller_id, count(*) AS runs FROM agents.runs
      WHERE deployment_id = deployment AND status = 'running' GROUP BY 1
    ),
    -- `held` is the number of running runs that the caller has when this run is started after the runs before it.
    candidate AS (
      SELECT caller.id, due.next_due_at,
        coalesce(running.runs, 0) + row_number() OVER (PARTITION BY caller.id ORDER BY due.next_due_at) - 1 AS held
      FROM unnest(callers) caller (id) LEFT JOIN running ON running.caller_id = caller.id CROSS JOIN LATERAL (
        SELECT next_due_at FROM agents.threads
        WHERE deployment_id = deployment AND next_caller_id = caller.id AND (write_until IS NULL OR write_until <= claimed_at)
        ORDER BY next_due_at LIMIT slots + extra_slots
      ) due
    ),
    ranked AS (
      SELECT id, held, row_number() OVER (ORDER BY held, next_due_at) AS rank FROM candidate
    ),
    share AS (
      SELECT greatest(1, (SELECT sum(runs) FROM running) / (
        SELECT count(*) FROM (SELECT caller_id FROM running UNION SELECT unnest(callers)) every
      )) AS runs
    ),
    turn AS (
      SELECT id, count(*) AS runs FROM ranked
      WHERE rank <= slots OR (rank <= slots + extra_slots AND held < (SELECT floor(runs) FROM share)) GROUP BY id
    )
    SELECT head.thread_id FROM turn CROSS JOIN LATERAL (
      SELECT thread_id FROM agents.threads
      WHERE deployment_id = deployment AND next_caller_id = turn.id AND (write_until IS NULL OR write_until <= claimed_at)
      ORDER BY next_due_at LIMIT turn.runs FOR UPDATE SKIP LOCKED
    ) head
  );
  IF cardinality(heads) = 0 THEN RETURN; END IF;
  RETURN QUERY
  WITH started AS (
    UPDATE agents.threads SET starts = starts + 1, next_due_at = NULL, next_caller_id = NULL
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

-- Deletes what a run wrote to its thread, in all namespaces: its checkpoints and writes, and blobs that no other
-- checkpoint refers to. Restores rows of earlier runs that the run replaced. Call it only for the last run of a thread,
-- in the transaction that ends the run.
CREATE FUNCTION agents.rollback_checkpoints(of_thread text, of_run text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  -- Execute separate statements, because the parts of one statement do not see what the other parts changed.
  UPDATE agents.checkpoint_writes
  SET run_id = replaced_run_id, type = replaced_type, blob = replaced_blob,
    replaced_run_id = NULL, replaced_type = NULL, replaced_blob = NULL
  WHERE thread_id = of_thread AND run_id = of_run AND replaced_blob IS NOT NULL;

  DELETE FROM agents.checkpoint_writes w
  WHERE w.thread_id = of_thread AND (
    w.run_id = of_run OR EXISTS (
      SELECT FROM agents.checkpoints c
      WHERE c.thread_id = of_thread AND c.metadata ->> 'run_id' = of_run AND c.replaced IS NULL
        AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
    )
  );

  -- `staying` reads the rows as they were before this statement.
  WITH mine AS (
    SELECT checkpoint_ns, checkpoint_id, checkpoint, replaced FROM agents.checkpoints
    WHERE thread_id = of_thread AND metadata ->> 'run_id' = of_run
  ),
  restored AS (
    UPDATE agents.checkpoints c
    SET checkpoint = mine.replaced -> 'checkpoint', metadata = mine.replaced -> 'metadata', replaced = NULL
    FROM mine
    WHERE c.thread_id = of_thread AND c.checkpoint_ns = mine.checkpoint_ns AND c.checkpoint_id = mine.checkpoint_id
      AND mine.replaced IS NOT NULL
  ),
  deleted AS (
    DELETE FROM agents.checkpoints c USING mine
    WHERE c.thread_id = of_thread AND c.checkpoint_ns = mine.checkpoint_ns AND c.checkpoint_id = mine.checkpoint_id
      AND mine.replaced IS NULL
  ),
  staying AS (
    SELECT checkpoint_ns, checkpoint FROM agents.checkpoints
    WHERE thread_id = of_thread AND metadata ->> 'run_id' IS DISTINCT FROM of_run
    UNION ALL
    SELECT checkpoint_ns, replaced -> 'checkpoint' FROM mine WHERE replaced IS NOT NULL
  ),
  unused AS (
    SELECT checkpoint_ns, key AS channel, value AS version
    FROM mine, jsonb_each_text(mine.checkpoint -> 'channel_versions')
    EXCEPT
    SELECT checkpoint_ns, key, value FROM staying, jsonb_each_text(staying.checkpoint -> 'channel_versions')
  )
  DELETE FROM agents.checkpoint_blobs b USING unused
  WHERE b.thread_id = of_thread AND b.checkpoint_ns = unused.checkpoint_ns AND b.channel = unused.channel
    AND b.version = unused.version;
END $$;

-- Ends the run if the token is its lease; otherwise returns no row. `outcome` is the status if no cancel was requested.
-- If a rollback was requested, the run is removed with what it stored, and the thread stays as it was. If an interrupt
-- was requested, the run ends as interrupted, unless it failed. The status is decided here, under the lock of the
-- thread, so that a cancel that was acknowledged while the run was running always takes effect, even if the run's
-- process has not seen it. No other run of the thread is running, so the next run is the first pending run.
CREATE FUNCTION agents.end_run(
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
