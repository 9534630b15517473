import type { Sql } from '../../../infra/postgres/database.ts';
import { requireStorableJson } from '../threads/storable-json.ts';

export interface AssistantFilter {
  readonly graphId?: string;
  /** A part of the name, in capitals or not. */
  readonly name?: string;
  /** Holds these members. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Ids of those that need not hold them. */
  readonly besides?: readonly string[];
}

export async function countAssistants(database: Sql, deploymentId: string, filter: AssistantFilter): Promise<number> {
  const [row] = await database.query<{ total: number }>(
    `SELECT count(*) AS total FROM agents.assistants WHERE ${fitting}`,
    filterParams(deploymentId, filter),
  );
  return Number(row?.total ?? 0);
}

/** Condition on the columns of `agents.assistants`, with {@link filterParams} as $1 to $5. */
export const fitting = `deployment_id = $1 AND ($2::text IS NULL OR graph_id = $2)
  AND ($3::text IS NULL OR position(lower($3) IN lower(name)) > 0)
  AND ($4::jsonb IS NULL OR metadata @> $4::jsonb OR assistant_id = ANY($5::uuid[]))`;

export function filterParams(
  deploymentId: string,
  { graphId, name, metadata, besides = [] }: AssistantFilter,
): unknown[] {
  requireStorableJson([graphId, name, metadata], ['body']);
  const asked = metadata !== undefined && Object.keys(metadata).length > 0;
  return [deploymentId, graphId ?? null, name ?? null, asked ? metadata : null, besides];
}
