-- A run that need not wait is started where it is made, in one statement: what makes a run waits for one commit instead of two, and
-- the rows of run and thread are written once. And a thread is told of only where somebody has to look at it: transactions that NOTIFY
-- are committed one after the other.

-- Room for the next version of a row on its page, so that what changes no index writes none.
ALTER TABLE agents.threads SET (fillfactor = 80);
ALTER TABLE agents.runs SET (fillfactor = 80);

-- Until a table is analyzed for the first time all its indexes look alike, and one that begins with the organisation serves every
-- statement: each end of a run read through all runs. So only those indexes begin with it that find a single run by what follows.
DROP INDEX agents.runs_of_assistant, agents.runs_of_thread, agents.runs_leased;
CREATE INDEX runs_of_assistant ON agents.runs (assistant_id);
CREATE INDEX runs_of_thread ON agents.runs (thread_id, queue_position DESC);
CREATE UNIQUE INDEX runs_leased ON agents.runs (lease_token) WHERE status = 'running' AND lease_token IS NOT NULL;

DROP FUNCTION agents.add_run;

-- Adds a run to a thread. `outcome` is 'made', or 'started' where a lease was asked for and the run is not to wait; or, with nothing
-- written, 'thread-exists' where a thread was to be made for it, 'no-thread', 'not-yours' where the metadata of the thread does not
-- hold `required`, or 'going' where another run of the thread waits or runs and the new one is not to be `beside_others`.
CREATE FUNCTION agents.add_run(
  organization uuid, thread uuid, make_thread text, required jsonb, first_metadata jsonb, about jsonb,
  first_ttl_minutes float8, first_ttl_strategy text, beside_others boolean,
  run uuid, assistant uuid, graph text, run_kwargs json, run_metadata jsonb, strategy text, is_temporary boolean,
  after_seconds float8, run_sender json, token uuid, lease_ms float8
) RETURNS TABLE (outcome text, made_at timestamptz, start_number bigint, base text)
LANGUAGE plpgsql AS $$
DECLARE
  found_thread agents.threads;
  starts_now boolean := token IS NOT NULL AND after_seconds <= 0;
  others_go boolean := false;
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
    -- One by one, as each has an index of its own.
    others_go :=
      EXISTS (SELECT FROM agents.runs WHERE organization_id = organization AND thread_id = thread AND status = 'running')
      OR EXISTS (SELECT FROM agents.runs WHERE organization_id = organization AND thread_id = thread AND status = 'pending');
    IF others_go AND NOT beside_others THEN outcome := 'going'; RETURN NEXT; RETURN; END IF;
  END IF;
  -- After the lock, so that runs of a thread are due in the order in which they came.
  made_at := clock_timestamp();
  IF starts_now AND NOT others_go AND coalesce(found_thread.write_until <= made_at, true) THEN
    outcome := 'started';
    base := (
      SELECT checkpoint_id FROM agents.checkpoints
      WHERE thread_id = organization || ':' || thread AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1
    );
    UPDATE agents.threads SET
      starts = starts + 1,
      updated_at = made_at,
      expires_at = made_at + ttl_minutes * interval '1 minute',
      metadata = CASE WHEN metadata @> about THEN metadata ELSE metadata || about END,
      status = 'busy'
    WHERE organization_id = organization AND thread_id = thread
    RETURNING starts INTO start_number;
    INSERT INTO agents.runs (organization_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
      temporary, due_at, sender, created_at, updated_at, started_at,
      status, attempt, lease_token, lease_until, base_checkpoint_id, thread_start)
    VALUES (organization, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
      is_temporary, made_at, run_sender, made_at, made_at, made_at,
      'running', 1, token, made_at + lease_ms * interval '1 millisecond', base, start_number);
  ELSE
    outcome := 'made';
    INSERT INTO agents.runs (organization_id, thread_id, run_id, assistant_id, graph_id, kwargs, metadata, multitask_strategy,
      temporary, due_at, sender, created_at, updated_at)
    VALUES (organization, thread, run, assistant, graph, run_kwargs, run_metadata, strategy,
      is_temporary, made_at + after_seconds * interval '1 second', run_sender, made_at, made_at);
    PERFORM agents.update_thread_status(organization, thread, about);
    PERFORM pg_notify('agent_runs', '');
  END IF;
  RETURN NEXT;
END $$;

-- Ends a run whose lease this is; no row where it was lost. What clients see of the thread is written unless the run is rolled back.
-- As no other run of the thread runs, that one is due next which waits longest.
CREATE OR REPLACE FUNCTION agents.end_run(
  organization uuid, thread uuid, run uuid, token uuid, end_status text, failure json, roll_back boolean,
  resting text, state json, searchable jsonb, waiting_for json, is_incomplete boolean
) RETURNS SETOF agents.runs
LANGUAGE plpgsql AS $$
DECLARE
  ended agents.runs;
  first_due timestamptz;
  ended_at_time timestamptz;
BEGIN
  PERFORM FROM agents.threads WHERE organization_id = organization AND thread_id = thread FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  ended_at_time := clock_timestamp();
  UPDATE agents.runs SET status = end_status, error = failure, removed = roll_back, events_missing = is_incomplete,
    ended_at = ended_at_time, updated_at = ended_at_time, end_published = false
  WHERE organization_id = organization AND thread_id = thread AND run_id = run AND lease_token = token AND status = 'running'
  RETURNING * INTO ended;
  IF NOT FOUND THEN RETURN; END IF;
  first_due := (
    SELECT min(due_at) FROM agents.runs WHERE organization_id = organization AND thread_id = thread AND status = 'pending'
  );
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
    next_due_at = first_due
  WHERE organization_id = organization AND thread_id = thread;
  IF first_due IS NOT NULL THEN PERFORM pg_notify('agent_runs', ''); END IF;
  RETURN NEXT ended;
END $$;
