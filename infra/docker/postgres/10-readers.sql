-- Runs once, when the data folder of Postgres is created: creates the database of the schema registry, and the role of Grafana.
\getenv registry_password REGISTRY_DATABASE_PASSWORD
\getenv grafana_password GRAFANA_DATABASE_PASSWORD

CREATE ROLE registry LOGIN PASSWORD :'registry_password';
CREATE DATABASE registry OWNER registry;

-- Grafana reads names through one function, so its role needs no privileges on tables: the same database contains key hashes,
-- dead-letter records and deferred events. Runlake creates the tables later; Postgres resolves them when the function runs.
CREATE ROLE grafana LOGIN PASSWORD :'grafana_password' CONNECTION LIMIT 20;
ALTER ROLE grafana SET default_transaction_read_only = on;
ALTER ROLE grafana SET statement_timeout = '30s';
CREATE SCHEMA dashboards;

-- Returns current names by id, for each dimension of usage_hourly, including deleted projects and revoked keys.
CREATE FUNCTION dashboards.names(dimension text)
  RETURNS TABLE (id text, name text, workspace_id text)
  LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  CASE dimension
    WHEN 'workspace' THEN
      RETURN QUERY SELECT w.id::text, w.display_name, w.id::text FROM public.workspaces AS w;
    WHEN 'project' THEN
      RETURN QUERY SELECT p.id::text, p.name, p.workspace_id::text FROM public.projects AS p;
    WHEN 'user' THEN
      RETURN QUERY SELECT u.id::text, u.email, NULL::text FROM public.users AS u;
    WHEN 'api_key' THEN
      RETURN QUERY SELECT k.id::text, concat_ws(' ', k.short_key, nullif(k.description, '')), NULL::text FROM public.api_keys AS k;
    ELSE
      RAISE EXCEPTION 'usage has no dimension %', dimension;
  END CASE;
END
$$;

REVOKE ALL ON FUNCTION dashboards.names(text) FROM PUBLIC;
GRANT USAGE ON SCHEMA dashboards TO grafana;
GRANT EXECUTE ON FUNCTION dashboards.names(text) TO grafana;
