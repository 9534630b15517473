-- What was asked of a run (interrupt, rollback) is decided by the statement that ends it, under the lock of its thread. A cancel that
-- was acknowledged while the run was running therefore always takes effect, whatever its process knows of it.

-- Deletes what a run wrote to its thread, in all namespaces: its checkpoints and writes, and blobs that no other checkpoint refers to.
-- Restores what it replaced of an earlier run. Only for the last run of a thread, in the transaction that ends it.
CREATE FUNCTION agents.rollback_checkpoints(of_thread text, of_run text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  -- One after the other: parts of one statement do not see what the other parts changed.
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

DROP FUNCTION agents.end_run;

-- Ends the run if the token is its lease; otherwise returns no row. `outcome` is the status if nothing was asked of the run. Asked for
-- a rollback it is removed with what it stored, and the thread stays as it was. Asked for an interrupt it ends as interrupted, unless it
-- failed. No other run of the thread is running, so the next one due is the first pending one.
CREATE FUNCTION agents.end_run(
  deployment uuid, thread uuid, run uuid, token uuid, outcome text, failure json,
  resting text, state json, searchable jsonb, waiting_for json, is_incomplete boolean
) RETURNS SETOF agents.runs
LANGUAGE plpgsql AS $$
DECLARE
  ended agents.runs;
  roll_back boolean;
  first_due timestamptz;
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
    ended_at = ended_at_time, updated_at = ended_at_time, end_published = false
  WHERE deployment_id = deployment AND thread_id = thread AND run_id = run AND lease_token = token AND status = 'running'
  RETURNING * INTO ended;
  IF NOT FOUND THEN RETURN; END IF;
  roll_back := ended.removed;
  IF roll_back THEN PERFORM agents.rollback_checkpoints(deployment || ':' || thread, run::text); END IF;
  first_due := (
    SELECT min(due_at) FROM agents.runs WHERE deployment_id = deployment AND thread_id = thread AND status = 'pending'
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
  WHERE deployment_id = deployment AND thread_id = thread;
  IF first_due IS NOT NULL THEN PERFORM pg_notify('agent_runs', deployment::text); END IF;
  RETURN NEXT ended;
END $$;
