-- Graph and assistant that the metadata of the thread named when the run was added, for a run that is undone: rolled
-- back, or ended before it started. Null if the thread had no graph, had the same ones, or the run was undone.
ALTER TABLE agents.runs ADD COLUMN IF NOT EXISTS graph_before jsonb;

CREATE OR REPLACE FUNCTION agents.store_graph_before() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  SELECT jsonb_strip_nulls(jsonb_build_object('graph_id', metadata -> 'graph_id', 'assistant_id', metadata -> 'assistant_id'))
  INTO NEW.graph_before FROM agents.threads
  WHERE deployment_id = NEW.deployment_id AND thread_id = NEW.thread_id AND metadata ? 'graph_id'
    AND NOT metadata @> jsonb_build_object('graph_id', NEW.graph_id, 'assistant_id', NEW.assistant_id);
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER store_graph_before BEFORE INSERT ON agents.runs
FOR EACH ROW EXECUTE FUNCTION agents.store_graph_before();

-- Gives the thread its former graph and assistant, unless a client has changed them. If another run was added
-- afterwards, that run gets them instead. A statement can undo several runs of a thread; then `graph_before` of those
-- for which this function was not called yet is set.
CREATE OR REPLACE FUNCTION agents.restore_graph_before() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  former jsonb;
BEGIN
  SELECT graph_before INTO former FROM agents.runs WHERE deployment_id = NEW.deployment_id AND run_id = NEW.run_id;
  UPDATE agents.runs SET graph_before = NULL WHERE deployment_id = NEW.deployment_id AND run_id = NEW.run_id;
  UPDATE agents.runs SET graph_before = former
  WHERE deployment_id = NEW.deployment_id AND run_id = (
    SELECT run_id FROM agents.runs later
    WHERE deployment_id = NEW.deployment_id AND thread_id = NEW.thread_id AND queue_position > NEW.queue_position
      AND (graph_before IS NOT NULL OR (NOT removed AND (status = 'pending' OR attempt > 0)))
    ORDER BY queue_position LIMIT 1
  );
  IF FOUND THEN RETURN NULL; END IF;
  UPDATE agents.threads SET metadata = metadata - '{graph_id,assistant_id}'::text[] || former
  WHERE deployment_id = NEW.deployment_id AND thread_id = NEW.thread_id
    AND metadata @> jsonb_build_object('graph_id', NEW.graph_id, 'assistant_id', NEW.assistant_id);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER restore_graph_before AFTER UPDATE OF status ON agents.runs FOR EACH ROW
WHEN (NEW.graph_before IS NOT NULL AND OLD.status IN ('pending', 'running')
  AND NEW.status NOT IN ('pending', 'running') AND (NEW.removed OR NEW.attempt = 0))
EXECUTE FUNCTION agents.restore_graph_before();
