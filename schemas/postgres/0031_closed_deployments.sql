-- Set by the deletion of a workspace before it deletes rows. From then on no row can be added to the deployment.
ALTER TABLE agents.deployments ADD COLUMN IF NOT EXISTS closed_at timestamptz;

-- Foreign keys to `agents.deployments` lock its row FOR KEY SHARE. The deletion sets `closed_at` under FOR UPDATE, so it waits for the
-- transactions that added rows before. Triggers of one event fire by name, this one after those of foreign keys: it sees `closed_at`
-- of every deletion that did not wait. SECURITY DEFINER: graph code stores items, but reads no deployments.
CREATE OR REPLACE FUNCTION agents.require_open_deployment() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM agents.deployments WHERE deployment_id = NEW.deployment_id AND closed_at IS NOT NULL) THEN
    RAISE EXCEPTION 'deployment % is closed', NEW.deployment_id USING ERRCODE = 'RL001';
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER require_open_deployment AFTER INSERT ON agents.assistants
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
CREATE OR REPLACE TRIGGER require_open_deployment AFTER INSERT ON agents.threads
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
CREATE OR REPLACE TRIGGER require_open_deployment AFTER INSERT ON agents.runs
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
CREATE OR REPLACE TRIGGER require_open_deployment AFTER INSERT ON agents.crons
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
CREATE OR REPLACE TRIGGER require_open_deployment AFTER INSERT ON agents.webhooks
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
CREATE OR REPLACE TRIGGER require_open_deployment AFTER INSERT ON agents.store_items
FOR EACH ROW EXECUTE FUNCTION agents.require_open_deployment();
