import { fault } from '../../../infra/errors/runlake-error.ts';
import { uuidv7 } from '../../../infra/ids/uuid-v7.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { stayWithin } from '../../tenants/stay-within.ts';
import type { GraphConfig } from '../runs/run.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import type { Assistant } from './assistant.ts';
import { assistantColumns, keepVersion } from './assistant-row.ts';
import { contextText } from './ensure-system-assistants.ts';
import { resolveAssistant } from './resolve-assistant.ts';

export interface NewAssistant {
  /** Of a graph that is served; the caller has looked. */
  readonly graphId: string;
  /** Default: a new one. */
  readonly assistantId?: string;
  /** Default: the id of the graph. */
  readonly name?: string;
  readonly description?: string | null;
  readonly config?: GraphConfig;
  readonly context?: unknown;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly ifExists: 'raise' | 'do_nothing';
}

const assistantsThere = 'SELECT count(*) AS there FROM agents.assistants WHERE deployment_id = $1';

/** Makes an assistant, in version 1. @throws ASSISTANT_EXISTS, LIMIT_REACHED, INVALID_REQUEST for metadata that cannot be stored. */
export async function createAssistant(
  database: Database,
  deploymentId: string,
  assistant: NewAssistant,
  { maxAssistants }: { readonly maxAssistants: number },
): Promise<Assistant> {
  const { graphId, assistantId = uuidv7(), name = graphId, description, config = {}, metadata = {} } = assistant;
  requireStorableJson(metadata, ['body', 'metadata']);
  const made = await database.transaction(async (tx) => {
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
      await tx.execute(keepVersion, [deploymentId, assistantId]);
      await stayWithin(tx, { deploymentId }, { most: maxAssistants, count: assistantsThere }, () =>
        fault('LIMIT_REACHED', {
          limit: maxAssistants,
          what: 'assistants',
          setting: 'RUNLAKE_AGENTS_MAX_ASSISTANTS',
          instead: 'Delete those that are not needed',
        }),
      );
    }
    return row;
  });
  if (made !== undefined) return made;
  if (assistant.ifExists === 'raise') throw fault('ASSISTANT_EXISTS', { assistant: assistantId });
  return resolveAssistant(database, deploymentId, assistantId);
}
