import { v7 as uuidv7 } from 'uuid';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { enforceLimit } from '../../tenants/enforce-limit.ts';
import type { GraphConfig } from '../runs/run.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import type { Assistant } from './assistant.ts';
import { assistantColumns, insertVersionSql } from './assistant-row.ts';
import { contextText } from './ensure-system-assistants.ts';
import { resolveAssistant } from './resolve-assistant.ts';

export interface NewAssistant {
  /** Id of a served graph. The caller must have checked it. */
  readonly graphId: string;
  /** Default: a new id. */
  readonly assistantId?: string;
  /** Default: the id of the graph. */
  readonly name?: string;
  readonly description?: string | null;
  readonly config?: GraphConfig;
  readonly context?: unknown;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly ifExists: 'raise' | 'do_nothing';
}

const countAssistantsSql = 'SELECT count(*) AS there FROM agents.assistants WHERE deployment_id = $1';

/**
 * Creates an assistant with version 1. With `ifExists: 'do_nothing'` it returns an existing assistant unchanged.
 *
 * @throws ASSISTANT_EXISTS, LIMIT_REACHED, INVALID_REQUEST if Postgres cannot store the metadata.
 */
export async function createAssistant(
  database: Database,
  deploymentId: string,
  assistant: NewAssistant,
  { maxAssistants }: { readonly maxAssistants: number },
): Promise<Assistant> {
  const { graphId, assistantId = uuidv7(), name = graphId, description, config = {}, metadata = {} } = assistant;
  requireStorableJson(metadata, ['body', 'metadata']);
  const created = await database.transaction(async (tx) => {
    const [row] = await tx.query<Assistant>(
      `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name, description, config, context, metadata)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING ${assistantColumns}`,
      [
        deploymentId,
        assistantId,
        graphId,
        name,
        description ?? null,
        JSON.stringify(config),
        contextText(assistant.context),
        metadata,
      ],
    );
    if (row !== undefined) {
      await tx.execute(insertVersionSql, [deploymentId, assistantId]);
      await enforceLimit(tx, { deploymentId }, { most: maxAssistants, count: countAssistantsSql }, () =>
        runlakeError('LIMIT_REACHED', {
          limit: maxAssistants,
          what: 'assistants',
          instead: 'Delete assistants that are no longer needed',
        }),
      );
    }
    return row;
  });
  if (created !== undefined) return created;
  if (assistant.ifExists === 'raise') throw runlakeError('ASSISTANT_EXISTS', { assistant: assistantId });
  return resolveAssistant(database, deploymentId, assistantId);
}
