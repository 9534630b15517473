-- As in 0006 and 0038. The first pending run of each thread is found before runs are joined: before the first ANALYZE,
-- Postgres looked for it once for each run of the deployment.
CREATE OR REPLACE FUNCTION agents.claim_runs(deployment uuid, slots integer, extra_slots integer, process uuid)
RETURNS SETOF agents.runs
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
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
  ),
  next_run AS MATERIALIZED (
    SELECT started.deployment_id, started.starts, head.run_id FROM started CROSS JOIN LATERAL (
      SELECT run_id FROM agents.runs waiting
      WHERE waiting.deployment_id = started.deployment_id AND waiting.thread_id = started.thread_id
        AND waiting.status = 'pending'
      ORDER BY due_at, queue_position LIMIT 1
    ) head
  )
  UPDATE agents.runs run SET
    status = 'running',
    attempt = run.attempt + 1,
    thread_start = next_run.starts,
    lease_token = gen_random_uuid(),
    process_id = process,
    started_at = coalesce(run.started_at, clock_timestamp()),
    updated_at = clock_timestamp(),
    base_checkpoint_id = CASE WHEN run.attempt > 0 THEN run.base_checkpoint_id ELSE (
      SELECT checkpoint_id FROM agents.checkpoints checkpoint
      WHERE checkpoint.thread_id = run.deployment_id || ':' || run.thread_id AND checkpoint.checkpoint_ns = ''
      ORDER BY checkpoint_id DESC LIMIT 1
    ) END
  FROM next_run WHERE run.deployment_id = next_run.deployment_id AND run.run_id = next_run.run_id
  RETURNING run.*;
END $$;
