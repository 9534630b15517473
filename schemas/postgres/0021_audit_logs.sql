-- The audit log: who changed keys, members, roles, destinations, deployments and secrets, and who deleted what. Triggers
-- write the entries in the transaction of the change. The actor is the setting `runlake.actor` of this transaction, which
-- `infra/postgres/actor.ts` sets.
CREATE TABLE IF NOT EXISTS audit_logs (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  organization_id uuid NOT NULL,
  -- Null if the change concerns the organisation.
  workspace_id uuid,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- `api_key`, `session`, `command` (the operator on the command line) or `system`.
  actor_kind text NOT NULL,
  actor_id text,
  actor_name text,
  action text NOT NULL,
  target_kind text,
  target_id text,
  target_name text,
  ip text,
  -- Never contains secrets: for changes, the names of the changed fields.
  details jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS audit_logs_of_organization ON audit_logs (organization_id, id DESC);
CREATE INDEX IF NOT EXISTS audit_logs_by_time ON audit_logs (organization_id, at);

CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'audit_logs is append-only' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE OR REPLACE TRIGGER audit_logs_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_logs
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

-- Arguments: kind of the target, verb, column of its name, columns whose values are recorded, columns whose names are
-- recorded if they changed; then `actor` if changes of Runlake itself, such as purges, are not recorded.
CREATE OR REPLACE FUNCTION record_audit_log() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  actor jsonb := nullif(current_setting('runlake.actor', true), '')::jsonb;
  details jsonb := '{}';
  changed jsonb := '[]';
  fields jsonb := '{}';
  organization uuid;
  workspace text;
  value text;
  is_changed boolean;
  field text;
  known text[];
BEGIN
  IF actor IS NULL AND TG_ARGV[5] = 'actor' THEN RETURN NULL; END IF;
  SELECT array_agg(attname::text) INTO known FROM pg_attribute
    WHERE attrelid = TG_RELID AND attnum > 0 AND NOT attisdropped;
  -- Single columns, because a json column may hold text that jsonb cannot.
  FOREACH field IN ARRAY ARRAY['id', 'workspace_id', 'tenant_id', 'organization_id', 'key_id', 'key', 'kind', 'target_id', TG_ARGV[2]]
      || string_to_array(TG_ARGV[3], ',') LOOP
    CONTINUE WHEN NOT field = ANY (known);
    IF TG_OP = 'DELETE' THEN EXECUTE format('SELECT ($1).%I::text', field) INTO value USING OLD;
    ELSE EXECUTE format('SELECT ($1).%I::text', field) INTO value USING NEW; END IF;
    fields := fields || jsonb_build_object(field, value);
    IF field = ANY (string_to_array(TG_ARGV[3], ',')) THEN details := details || jsonb_build_object(field, value); END IF;
  END LOOP;
  IF TG_OP = 'UPDATE' THEN
    FOREACH field IN ARRAY string_to_array(TG_ARGV[4], ',') LOOP
      EXECUTE format('SELECT ($1).%1$I::text IS DISTINCT FROM ($2).%1$I::text', field) INTO is_changed USING OLD, NEW;
      IF is_changed THEN changed := changed || to_jsonb(regexp_replace(field, '^sealed_', '')); END IF;
    END LOOP;
    IF changed = '[]' AND TG_ARGV[1] = 'update' THEN RETURN NULL; END IF;
    IF changed <> '[]' THEN details := details || jsonb_build_object('changed', changed); END IF;
  END IF;
  workspace := CASE TG_ARGV[0] WHEN 'workspace' THEN fields ->> 'id'
    ELSE coalesce(fields ->> 'workspace_id', fields ->> 'tenant_id') END;
  organization := coalesce(
    CASE TG_ARGV[0] WHEN 'organization' THEN coalesce(actor ->> 'organization_id', fields ->> 'id')::uuid END,
    (fields ->> 'organization_id')::uuid,
    (SELECT w.organization_id FROM workspaces w WHERE w.id = workspace::uuid),
    (SELECT k.organization_id FROM api_keys k WHERE k.id = (fields ->> 'key_id')::uuid)
  );
  -- Model prices of the installation belong to no organisation.
  IF organization IS NULL THEN RETURN NULL; END IF;
  INSERT INTO audit_logs (organization_id, workspace_id, actor_kind, actor_id, actor_name, action, target_kind, target_id,
    target_name, ip, details)
  VALUES (organization, workspace::uuid, coalesce(actor ->> 'kind', 'system'), actor ->> 'id', actor ->> 'name',
    TG_ARGV[0] || '.' || TG_ARGV[1], CASE TG_ARGV[0] WHEN 'share' THEN fields ->> 'kind' ELSE TG_ARGV[0] END,
    coalesce(fields ->> 'target_id', fields ->> 'id', fields ->> 'key'), fields ->> TG_ARGV[2], actor ->> 'ip', details);
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON api_keys FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('api_key', 'create', 'description', 'short_key,user_id,workspace_ids,permissions,read_only,expires_at', '', '');
CREATE OR REPLACE TRIGGER audit_revoke AFTER UPDATE OF revoked_at ON api_keys FOR EACH ROW
  WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL)
  EXECUTE FUNCTION record_audit_log('api_key', 'revoke', 'description', 'short_key,user_id', '', '');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON users FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('member', 'create', 'email', '', '', '');
CREATE OR REPLACE TRIGGER audit_remove AFTER UPDATE OF removed_at ON users FOR EACH ROW
  WHEN (OLD.removed_at IS NULL AND NEW.removed_at IS NOT NULL)
  EXECUTE FUNCTION record_audit_log('member', 'remove', 'email', '', '', '');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON organizations FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('organization', 'create', 'display_name', '', '', '');
CREATE OR REPLACE TRIGGER audit_delete AFTER UPDATE OF deleted_at ON organizations FOR EACH ROW
  WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
  EXECUTE FUNCTION record_audit_log('organization', 'delete', 'display_name', '', '', '');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON workspaces FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('workspace', 'create', 'display_name', '', '', '');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE OF display_name, tenant_handle ON workspaces FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('workspace', 'update', 'display_name', '', 'display_name,tenant_handle', '');
CREATE OR REPLACE TRIGGER audit_delete AFTER UPDATE OF deleted_at ON workspaces FOR EACH ROW
  WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
  EXECUTE FUNCTION record_audit_log('workspace', 'delete', 'display_name', '', '', '');

CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON workspace_secrets FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('secret', 'create', 'key', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE ON workspace_secrets FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('secret', 'update', 'key', '', 'sealed_value', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON workspace_secrets FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('secret', 'delete', 'key', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON usage_limits FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('usage_limit', 'create', 'limit_type', 'limit_value,is_hard', '', 'actor');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE ON usage_limits FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('usage_limit', 'update', 'limit_type', 'limit_value,is_hard', 'limit_value', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON usage_limits FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('usage_limit', 'delete', 'limit_type', 'limit_value,is_hard', '', 'actor');

CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON bulk_export_destinations FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('export_destination', 'create', 'display_name', 'destination_type', '', 'actor');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE OF display_name, config, sealed_credentials ON bulk_export_destinations FOR EACH ROW
  WHEN (NEW.deleted_at IS NULL)
  EXECUTE FUNCTION record_audit_log('export_destination', 'update', 'display_name', '', 'display_name,config,sealed_credentials', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER UPDATE OF deleted_at ON bulk_export_destinations FOR EACH ROW
  WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
  EXECUTE FUNCTION record_audit_log('export_destination', 'delete', 'display_name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON bulk_exports FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('bulk_export', 'create', '', 'destination_id,project_id,interval_hours', '', 'actor');
CREATE OR REPLACE TRIGGER audit_cancel AFTER UPDATE OF status ON bulk_exports FOR EACH ROW
  WHEN (OLD.status <> 'CANCELLED' AND NEW.status = 'CANCELLED')
  EXECUTE FUNCTION record_audit_log('bulk_export', 'cancel', '', 'destination_id,project_id', '', 'actor');

CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON deployments FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('deployment', 'create', 'name', 'source', '', 'actor');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE OF name, source_config, source_revision_config, sealed_secrets ON deployments FOR EACH ROW
  WHEN (NEW.deletion_requested_at IS NULL)
  EXECUTE FUNCTION record_audit_log('deployment', 'update', 'name', '', 'name,source_config,source_revision_config,sealed_secrets,secret_names,secret_references', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER UPDATE OF deletion_requested_at ON deployments FOR EACH ROW
  WHEN (OLD.deletion_requested_at IS NULL AND NEW.deletion_requested_at IS NOT NULL)
  EXECUTE FUNCTION record_audit_log('deployment', 'delete', 'name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON deployment_revisions FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('deployment_revision', 'create', 'number', 'deployment_id', '', 'actor');

CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON oauth_providers FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_provider', 'create', 'name', 'provider_id', '', 'actor');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE ON oauth_providers FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_provider', 'update', 'name', 'provider_id', 'name,client_id,sealed_client_secret,auth_url,token_url,revocation_url,uses_pkce,provider_type,token_endpoint_auth_method', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON oauth_providers FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_provider', 'delete', 'name', 'provider_id', '', 'actor');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON oauth_tokens FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_token', 'create', 'label', 'user_id,provider', '', '');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE OF label, is_default, for_any_agent ON oauth_tokens FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_token', 'update', 'label', 'user_id,provider', 'label,is_default,for_any_agent', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON oauth_tokens FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_token', 'delete', 'label', 'user_id,provider', '', 'actor');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON oauth_agent_connections FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_connection', 'create', 'agent_id', 'token_id', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON oauth_agent_connections FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('oauth_connection', 'delete', 'agent_id', 'token_id', '', 'actor');

CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON shares FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('share', 'create', '', 'thread_id', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON shares FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('share', 'delete', '', 'thread_id', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER UPDATE OF deleted_at ON projects FOR EACH ROW
  WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
  EXECUTE FUNCTION record_audit_log('project', 'delete', 'name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON datasets FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('dataset', 'delete', 'name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON comparative_experiments FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('comparative_experiment', 'delete', 'name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_update AFTER UPDATE OF is_public ON repos FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('prompt', 'update', 'handle', 'is_public', 'is_public', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON repos FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('prompt', 'delete', 'handle', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON annotation_queues FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('annotation_queue', 'delete', 'name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON evaluators FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('evaluator', 'delete', 'name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON model_prices FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('model_price', 'delete', 'name', '', '', 'actor');
CREATE OR REPLACE TRIGGER audit_delete AFTER INSERT ON trace_changes FOR EACH ROW WHEN (NEW.kind = 'delete')
  EXECUTE FUNCTION record_audit_log('trace', 'delete', '', 'session_id,trace_ids,metadata', '', 'actor');
-- Sessions that have expired are deleted by others.
CREATE OR REPLACE TRIGGER audit_delete AFTER DELETE ON sign_in_sessions FOR EACH ROW WHEN (OLD.expires_at > now())
  EXECUTE FUNCTION record_audit_log('session', 'delete', '', 'key_id', '', 'actor');
CREATE OR REPLACE TRIGGER audit_create AFTER INSERT ON sign_in_sessions FOR EACH ROW
  EXECUTE FUNCTION record_audit_log('session', 'create', '', 'key_id', '', 'actor');
