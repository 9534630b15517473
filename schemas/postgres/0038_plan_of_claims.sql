-- By default Postgres plans the statements of the function again for each call, because it cannot estimate `LIMIT slots`.
-- The planning took more than half of the CPU time of a claim. CREATE OR REPLACE of the function drops this setting.
ALTER FUNCTION agents.claim_runs(uuid, integer, integer, uuid) SET plan_cache_mode = force_generic_plan;
