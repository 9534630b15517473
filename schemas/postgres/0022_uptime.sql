-- Uptime by process: each counts the time since its own last call, so that the gap before its start does not count.
DROP FUNCTION IF EXISTS agents.count_uptime(uuid, interval);
ALTER TABLE agents.uptime DROP COLUMN IF EXISTS counted_until;
-- The time that is counted, in whole seconds. Contains only what a process could count again.
ALTER TABLE agents.uptime ADD COLUMN IF NOT EXISTS counted tstzmultirange NOT NULL DEFAULT '{}';

-- Counts the time from `since` until `at_time` as uptime of a deployment. Time counts once, however many processes a
-- deployment has. Returns the `since` of the next call of the same process; its first call passes NULL. A process that
-- has not called for longer than `max_gap` was not running, so this time does not count.
CREATE OR REPLACE FUNCTION agents.count_uptime(
  deployment uuid, since timestamptz, max_gap interval, at_time timestamptz DEFAULT clock_timestamp()
) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
  until timestamptz := date_trunc('second', at_time);
  known tstzmultirange;
BEGIN
  IF since IS NULL OR until - since > max_gap THEN RETURN until; END IF;
  IF since >= until THEN RETURN since; END IF;
  INSERT INTO agents.uptime (deployment_id) VALUES (deployment) ON CONFLICT DO NOTHING;
  SELECT counted INTO known FROM agents.uptime WHERE deployment_id = deployment FOR UPDATE SKIP LOCKED;
  -- Another process is counting at this moment: the next call counts.
  IF known IS NULL THEN RETURN since; END IF;
  UPDATE agents.uptime SET counted = (known + tstzmultirange(tstzrange(since, until)))
      * tstzmultirange(tstzrange(until - 2 * max_gap, NULL))
  WHERE deployment_id = deployment;
  PERFORM agents.add_usage(deployment, hour, NULL, NULL, NULL, 0, 0, seconds)
  FROM (
    SELECT hour, sum(extract(epoch FROM least(upper(part), hour + interval '1 hour') - greatest(lower(part), hour)))::bigint AS seconds
    FROM unnest(tstzmultirange(tstzrange(since, until)) - known) AS part,
      generate_series(date_trunc('hour', lower(part), 'UTC'), upper(part), interval '1 hour') AS hour
    GROUP BY hour
  ) AS counted_hours
  WHERE seconds > 0;
  RETURN until;
END $$;
