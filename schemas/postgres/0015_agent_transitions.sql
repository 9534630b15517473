-- What becomes of a run and its thread, each step in one call: a round trip a statement would cost more than the statements do. A
-- function is one transaction where it is called alone, and each statement in it sees what was committed before it began, so that
-- what is read after the lock of the thread is what holds. They run with the rights of who calls them.

-- Settles what the row of a thread says of its runs: busy while one waits or runs, and when the next one is due; and what its
-- metadata says of them. Last of what is done under the lock of the thread. A thread that is not kept for ever has its time again.
CREATE FUNCTION agents.update_thread_status(organization uuid, thread uuid, about jsonb DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  any_running boolean := EXISTS (
    SELECT FROM agents.runs WHERE organization_id = organization AND thread_id = thread AND status = 'running'
  );
  first_due timestamptz := (
    SELECT min(due_at) FROM agents.runs WHERE organization_id = organization AND thread_id = thread AND status = 'pending'
  );
BEGIN
  UPDATE agents.threads SET
    updated_at = clock_timestamp(),
    expires_at = clock_timestamp() + ttl_minutes * interval '1 minute',
    metadata = CASE WHEN metadata @> about THEN metadata ELSE metadata || about END,
    status = CASE WHEN any_running OR first_due IS NOT NULL THEN 'busy' ELSE rest_status END,
    next_due_at = CASE WHEN any_running THEN NULL ELSE first_due END
  WHERE organization_id = organization AND thread_id = thread;
END $$;

-- Adds a run to a thread. `outcome` is 'made'; or, with nothing written, 'thread-exists' where a thread was to be made for it,
-- 'no-thread', 'not-yours' where the metadata of the thread does not hold `required`, or 'going' where another run of the thread
-- waits or runs and the new one is not to be `beside_others`.
CREATE FUNCTION agents.add_run(
  organization uuid, thread uuid, make_thread text, required jsonb, first_metadata jsonb, about jsonb,
  first_ttl_minutes float8, first_ttl_strategy text, beside_others boolean,
  run uuid, assistant uuid, graph text, run_kwargs json, run_metadata jsonb, strategy text, is_temporary boolean,
  after_seconds float8, run_sender json
) RETURNS TABLE (outcome text, made_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
  found_thread agents.threads;
BEGIN
  IF make_thread = 'own' THEN
    INSERT INTO agents.threads (organization_id, thread_id, hidden, metadata, ttl_minutes, ttl_strategy)
    VALUES (organization, thread, is_temporary, first_metadata || about, first_ttl_minutes, first_ttl_strategy)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN outcome := 'thread-exists'; RETURN NEXT; RETURN; END IF;
  ELSE
    SELECT * INTO found_thread FROM agents.threads WHERE organization_id = organization AND thread_id = thread FOR UPDATE;
    IF NOT FOUND AND make_thread = 'where-missing' THEN
      IF NOT (first_metadata || about) @> required THEN outcome := 'not-yours'; RETURN NEXT; RETURN; END IF;
      -- Somebody else may make it at the same time.
      INSERT INTO agents.threads (organization_id, thread_id, metadata, ttl_minutes, ttl_strategy)
      VALUES (organization, thread, first_metadata || about, first_ttl_minutes, first_ttl_strategy) ON CONFLICT DO NOTHING;
      SELECT * INTO found_thread FROM agents.threads WHERE organization_id = organization AND thread_id = thread FOR UPDATE;
    END IF;
    IF found_thread.thread_id IS NULL OR found_thread.hidden THEN outcome := 'no-thread'; RETURN NEXT; RETURN; END IF;
    IF NOT found_thread.metadata @> required THEN outcome := 'not-yours'; RETURN NEXT; RETURN; END IF;
    IF NOT beside_others AND EXISTS (
      SELECT FROM agents.runs WHERE organization_id = organization AND thread_id = thread AND status IN ('pending', 'running')
    ) THEN outcome := 'going'; RETURN NEXT; RETURN; END IF;
  END IF;
  -- After the lock, so that runs of a thread are due in the order in which they came.
  made_at := clock_timestamp();
  INSERT INTO agents.runs (organization_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
    temporary, due_at, sender, created_at, updated_at)
  VALUES (organization, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
    is_temporary, made_at + after_seconds * interval '1 second', run_sender, made_at, made_at);
  PERFORM agents.update_thread_status(organization, thread, about);
  PERFORM pg_notify('agent_runs', '');
  outcome := 'made';
  RETURN NEXT;
END $$;

-- Starts the first waiting run of threads: of those that have waited longest, past the threads that somebody else has locked. Their
-- rows say so themselves (`next_due_at`), so that one which changed before the lock was had is looked at anew; and the runs are looked
-- for after the locks were had. Nothing but threads with a run to start is looked at, however many runs ended or wait behind another.
CREATE FUNCTION agents.claim_runs(organization uuid, slots integer, lease_ms float8) RETURNS SETOF agents.runs
LANGUAGE plpgsql AS $$
DECLARE
  heads uuid[];
BEGIN
  heads := ARRAY(
    SELECT thread_id FROM agents.threads
    WHERE organization_id = organization AND next_due_at <= clock_timestamp()
      AND (write_until IS NULL OR write_until <= clock_timestamp())
    ORDER BY next_due_at
    LIMIT slots
    FOR UPDATE SKIP LOCKED
  );
  IF cardinality(heads) = 0 THEN RETURN; END IF;
  RETURN QUERY
  WITH started AS (
    UPDATE agents.threads SET starts = starts + 1, next_due_at = NULL
    WHERE organization_id = organization AND thread_id = ANY (heads)
    RETURNING organization_id, thread_id, starts
  )
  UPDATE agents.runs run SET
    status = 'running',
    attempt = run.attempt + 1,
    thread_start = started.starts,
    lease_token = gen_random_uuid(),
    lease_until = clock_timestamp() + lease_ms * interval '1 millisecond',
    started_at = coalesce(run.started_at, clock_timestamp()),
    updated_at = clock_timestamp(),
    base_checkpoint_id = CASE WHEN run.attempt > 0 THEN run.base_checkpoint_id ELSE (
      SELECT checkpoint_id FROM agents.checkpoints checkpoint
      WHERE checkpoint.thread_id = run.organization_id || ':' || run.thread_id AND checkpoint.checkpoint_ns = ''
      ORDER BY checkpoint_id DESC LIMIT 1
    ) END
  FROM started CROSS JOIN LATERAL (
    SELECT run_id FROM agents.runs waiting
    WHERE waiting.organization_id = started.organization_id AND waiting.thread_id = started.thread_id
      AND waiting.status = 'pending'
    ORDER BY due_at, queue_position LIMIT 1
  ) head
  WHERE run.organization_id = started.organization_id AND run.run_id = head.run_id
  RETURNING run.*;
END $$;

-- Ends a run whose lease this is; no row where it was lost. What clients see of the thread is written unless the run is rolled back.
CREATE FUNCTION agents.end_run(
  organization uuid, thread uuid, run uuid, token uuid, end_status text, failure json, roll_back boolean,
  resting text, state json, searchable jsonb, waiting_for json, is_incomplete boolean
) RETURNS SETOF agents.runs
LANGUAGE plpgsql AS $$
DECLARE
  ended agents.runs;
BEGIN
  PERFORM FROM agents.threads WHERE organization_id = organization AND thread_id = thread FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  UPDATE agents.runs SET status = end_status, error = failure, removed = roll_back, events_missing = is_incomplete,
    ended_at = clock_timestamp(), updated_at = clock_timestamp(), end_published = false
  WHERE organization_id = organization AND run_id = run AND lease_token = token AND status = 'running'
  RETURNING * INTO ended;
  IF NOT FOUND THEN RETURN; END IF;
  IF NOT roll_back THEN
    UPDATE agents.threads SET rest_status = resting, values = coalesce(state, values),
      interrupts = coalesce(waiting_for, interrupts),
      searchable_values = CASE WHEN state IS NULL THEN searchable_values ELSE searchable END,
      error = failure, state_updated_at = clock_timestamp()
    WHERE organization_id = organization AND thread_id = thread;
  END IF;
  PERFORM agents.update_thread_status(organization, thread);
  PERFORM pg_notify('agent_runs', '');
  RETURN NEXT ended;
END $$;
