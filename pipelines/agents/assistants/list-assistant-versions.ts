import type { Sql } from '../../../infra/postgres/database.ts';
import { pageWithin } from '../page-within.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import type { AssistantVersion } from './assistant.ts';

/** Versions of an assistant, the newest first; empty where there is no such assistant. @throws ANSWER_TOO_LARGE */
export async function listAssistantVersions(
  database: Sql,
  deploymentId: string,
  assistantId: string,
  {
    metadata,
    limit,
    offset,
    limitBytes,
  }: {
    readonly metadata?: Readonly<Record<string, unknown>>;
    readonly limit: number;
    readonly offset: number;
    /** Default: as many as there are. */
    readonly limitBytes?: number;
  },
): Promise<AssistantVersion[]> {
  requireStorableJson(metadata ?? null, ['body', 'metadata']);
  return pageWithin<AssistantVersion>(
    database,
    `SELECT assistant_id, graph_id, name, description, config, context, metadata, version, created_at
     FROM agents.assistant_versions
     WHERE deployment_id = $1 AND assistant_id = $2 AND ($3::jsonb IS NULL OR metadata @> $3::jsonb)
     ORDER BY version DESC LIMIT $4 OFFSET $5`,
    [deploymentId, assistantId, metadata ?? null, limit, offset],
    limitBytes,
  );
}
