import type { Sql } from '../../../infra/postgres/database.ts';
import { requireStorableJson } from '../threads/storable-json.ts';

export interface AssistantFilter {
  readonly graphId?: string;
  /** Substring of the name; case is ignored. */
  readonly name?: string;
  /** Members that the metadata must contain. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Ids of assistants to which the condition on metadata does not apply. */
  readonly besides?: readonly string[];
}

/** Counts the assistants that match `filter`. @throws INVALID_REQUEST if Postgres cannot store a text of the filter. */
export async function countAssistants(database: Sql, deploymentId: string, filter: AssistantFilter): Promise<number> {
  const [row] = await database.query<{ total: number }>(
    `SELECT count(*) AS total FROM agents.assistants WHERE ${matchingSql}`,
    filterParams(deploymentId, filter),
  );
  return Number(row?.total ?? 0);
}

/** SQL condition on `agents.assistants`; $1 to $5 are {@link filterParams}. */
export const matchingSql = `deployment_id = $1 AND ($2::text IS NULL OR graph_id = $2)
  AND ($3::text IS NULL OR position(lower($3) IN lower(name)) > 0)
  AND ($4::jsonb IS NULL OR metadata @> $4::jsonb OR assistant_id = ANY($5::uuid[]))`;

export function filterParams(
  deploymentId: string,
  { graphId, name, metadata, besides = [] }: AssistantFilter,
): unknown[] {
  requireStorableJson([graphId, name, metadata], ['body']);
  const hasMetadata = metadata !== undefined && Object.keys(metadata).length > 0;
  return [deploymentId, graphId ?? null, name ?? null, hasMetadata ? metadata : null, besides];
}
