import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Assistant } from './assistant.ts';
import { assistantColumns } from './assistant-row.ts';
import { assistantIdOf } from './system-assistant.ts';

/** Reads an assistant by its id, or the system assistant of a graph by the id of the graph. @throws ASSISTANT_NOT_FOUND */
export async function resolveAssistant(database: Sql, deploymentId: string, idOrGraphId: string): Promise<Assistant> {
  const [row] = await database.query<Assistant>(
    `SELECT ${assistantColumns} FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2`,
    [deploymentId, assistantIdOf(idOrGraphId)],
    { name: 'agents_read_assistant' },
  );
  if (row === undefined) throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: idOrGraphId.slice(0, 100) });
  return row;
}
