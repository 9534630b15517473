/** Columns of `agents.assistants` that form an `Assistant`, as stored. */
export const assistantColumns =
  'assistant_id, graph_id, name, description, config, context, metadata, version, created_at, updated_at';

/** Copies the current row of assistant $2 in deployment $1 to `agents.assistant_versions`. */
export const insertVersionSql = `INSERT INTO agents.assistant_versions
  (deployment_id, assistant_id, version, graph_id, name, description, config, context, metadata)
  SELECT deployment_id, assistant_id, version, graph_id, name, description, config, context, metadata
  FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2`;
