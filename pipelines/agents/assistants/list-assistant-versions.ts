import type { Sql } from '../../../infra/postgres/database.ts';
import { pageWithin } from '../page-within.ts';
import { requireStorableJson } from '../threads/storable-json.ts';
import type { AssistantVersion } from './assistant.ts';

/** Lists the versions of an assistant, newest first; empty if the assistant does not exist. @throws ANSWER_TOO_LARGE */
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
    /** Maximum size of the page as JSON. Default: no limit. */
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
