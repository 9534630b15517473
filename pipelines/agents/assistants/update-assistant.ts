import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import type { GraphConfig } from '../runs/run.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import type { Assistant } from './assistant.ts';
import { assistantColumns, insertVersionSql } from './assistant-row.ts';
import { contextText } from './ensure-system-assistants.ts';
import { resolveAssistant } from './resolve-assistant.ts';

export interface AssistantChange {
  readonly graphId?: string;
  readonly name?: string;
  readonly description?: string | null;
  readonly config?: GraphConfig;
  readonly context?: unknown;
  /** Merged with the stored metadata, key by key. */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

/**
 * Stores a changed assistant as a new version and makes it the current one.
 *
 * @throws ASSISTANT_NOT_FOUND, INVALID_REQUEST if Postgres cannot store the metadata.
 */
export async function updateAssistant(
  database: Database,
  deploymentId: string,
  idOrGraphId: string,
  change: AssistantChange,
): Promise<Assistant> {
  requireStorableJson(change.metadata ?? {}, ['body', 'metadata']);
  const { assistant_id: id } = await resolveAssistant(database, deploymentId, idOrGraphId);
  return database.transaction(async (tx) => {
    // Lock the row first, so that concurrent updates get different version numbers.
    await tx.query('SELECT FROM agents.assistants WHERE deployment_id = $1 AND assistant_id = $2 FOR UPDATE', [
      deploymentId,
      id,
    ]);
    const [row] = await tx.query<Assistant>(
      `UPDATE agents.assistants SET
         graph_id = coalesce($3, graph_id),
         name = coalesce($4, name),
         description = CASE WHEN $5::boolean THEN $6::text ELSE description END,
         config = coalesce($7::json, config),
         context = CASE WHEN $8::boolean THEN $9::json ELSE context END,
         metadata = metadata || $10::jsonb,
         updated_at = clock_timestamp(),
         version = 1 + (SELECT max(version) FROM agents.assistant_versions WHERE deployment_id = $1 AND assistant_id = $2)
       WHERE deployment_id = $1 AND assistant_id = $2 RETURNING ${assistantColumns}`,
      [
        deploymentId,
        id,
        change.graphId ?? null,
        change.name ?? null,
        change.description !== undefined,
        change.description ?? null,
        change.config === undefined || change.config === null ? null : JSON.stringify(change.config),
        change.context !== undefined,
        contextText(change.context),
        change.metadata ?? {},
      ],
    );
    if (row === undefined) throw runlakeError('ASSISTANT_NOT_FOUND', { assistant: id });
    await tx.execute(insertVersionSql, [deploymentId, id]);
    return row;
  });
}
