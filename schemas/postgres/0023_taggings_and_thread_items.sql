-- Taggings end with their resource, however it is deleted. Otherwise they would count towards the limit of their value, and
-- a new resource with the same id would have them. Arguments: the column of the id, and the resource types.
CREATE OR REPLACE FUNCTION delete_taggings() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM taggings WHERE resource_id = (to_jsonb(OLD) ->> TG_ARGV[0])::uuid AND resource_type = ANY (TG_ARGV[1:]);
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER delete_taggings AFTER UPDATE OF deleted_at ON projects
  FOR EACH ROW WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
  EXECUTE FUNCTION delete_taggings('id', 'project', 'experiment');
CREATE OR REPLACE TRIGGER delete_taggings AFTER UPDATE OF closed_at ON agents.deployments
  FOR EACH ROW WHEN (OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL)
  EXECUTE FUNCTION delete_taggings('deployment_id', 'deployment');
CREATE OR REPLACE TRIGGER delete_taggings AFTER DELETE ON datasets
  FOR EACH ROW EXECUTE FUNCTION delete_taggings('id', 'dataset');
CREATE OR REPLACE TRIGGER delete_taggings AFTER DELETE ON repos
  FOR EACH ROW EXECUTE FUNCTION delete_taggings('id', 'prompt');
CREATE OR REPLACE TRIGGER delete_taggings AFTER DELETE ON annotation_queues
  FOR EACH ROW EXECUTE FUNCTION delete_taggings('id', 'queue');
CREATE OR REPLACE TRIGGER delete_taggings AFTER DELETE ON evaluators
  FOR EACH ROW EXECUTE FUNCTION delete_taggings('id', 'evaluator');

-- An entry of an index has at most 2,704 bytes, a thread id may have more.
DROP INDEX IF EXISTS annotation_queue_threads;
CREATE UNIQUE INDEX IF NOT EXISTS annotation_queue_thread_items ON annotation_queue_runs (queue_id, project_id, md5(thread_id))
  WHERE run_id IS NULL;
