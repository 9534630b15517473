import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Assistant } from './assistant.ts';
import { assistantColumns } from './assistant-row.ts';

/**
 * Makes an existing version of an assistant the current one. @throws ASSISTANT_NOT_FOUND if the assistant or version
 * does not exist.
 */
export async function setAssistantVersion(
  database: Sql,
  deploymentId: string,
  assistantId: string,
  version: number,
): Promise<Assistant> {
  const columns = assistantColumns.split(', ').map((column) => `assistants.${column}`);
  const [row] = await database.query<Assistant>(
    `UPDATE agents.assistants SET version = chosen.version, graph_id = chosen.graph_id, name = chosen.name,
       description = chosen.description, config = chosen.config, context = chosen.context, metadata = chosen.metadata,
       updated_at = clock_timestamp()
     FROM agents.assistant_versions chosen
     WHERE assistants.deployment_id = $1 AND assistants.assistant_id = $2 AND chosen.deployment_id = $1
       AND chosen.assistant_id = $2 AND chosen.version = $3
     RETURNING ${columns.join(', ')}`,
    [deploymentId, assistantId, version],
  );
  if (row === undefined)
    throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: `${assistantId} in version ${version}` });
  return row;
}
