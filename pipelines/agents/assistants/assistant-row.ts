/** Columns of `agents.assistants` that an `Assistant` is made of; what is stored is what is shown. */
export const assistantColumns =
  'assistant_id, graph_id, name, description, config, context, metadata, version, created_at, updated_at';

/** A version of an assistant, by the row as it is now. */
export const keepVersion = `INSERT INTO agents.assistant_versions
  (deployment_id, assistant_id, version, graph_id, name, description, config, context, metadata)
  SELECT deployment_id, assistant_id, version, graph_id, name, description, config, context, metadata
  FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2`;
