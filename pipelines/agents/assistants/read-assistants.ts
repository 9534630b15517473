import { requireStorableJson } from '../../../infra/json/json-value.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { PageRequest } from '../../../infra/postgres/list-page.ts';
import { buildSelectList, queryPageWithinLimit } from '../../../infra/postgres/page-within.ts';
import { type Assistant, type AssistantVersion, assistantColumns } from './assistant.ts';

export interface AssistantFilter {
  readonly graphId?: string;
  /** Substring of the name; case is ignored. */
  readonly name?: string;
  /** Members that the metadata must contain. */
  readonly metadata?: Readonly<Record<string, unknown>>;
  /** Ids of assistants to which the condition on metadata does not apply. */
  readonly alwaysIncludedIds?: readonly string[];
}

/** Counts the assistants that match `filter`. @throws INVALID_REQUEST if Postgres cannot store a text of the filter. */
export async function countAssistants(database: Sql, deploymentId: string, filter: AssistantFilter): Promise<number> {
  const [row] = await database.query<{ total: number }>(
    `SELECT count(*) AS total FROM agents.assistants WHERE ${filterCondition}`,
    buildFilterParams(deploymentId, filter),
  );
  return Number(row?.total ?? 0);
}

/** SQL condition on `agents.assistants`; $1 to $5 are {@link buildFilterParams}. */
const filterCondition = `deployment_id = $1 AND ($2::text IS NULL OR graph_id = $2)
  AND ($3::text IS NULL OR position(lower($3) IN lower(name)) > 0)
  AND ($4::jsonb IS NULL OR metadata @> $4::jsonb OR assistant_id = ANY($5::uuid[]))`;

function buildFilterParams(
  deploymentId: string,
  { graphId, name, metadata, alwaysIncludedIds = [] }: AssistantFilter,
): unknown[] {
  requireStorableJson([graphId, name, metadata], ['body']);
  const hasMetadata = metadata !== undefined && Object.keys(metadata).length > 0;
  return [deploymentId, graphId ?? null, name ?? null, hasMetadata ? metadata : null, alwaysIncludedIds];
}

export interface AssistantSearch<Field extends keyof Assistant = keyof Assistant> extends AssistantFilter, PageRequest {
  readonly sortBy: 'assistant_id' | 'graph_id' | 'name' | 'created_at' | 'updated_at';
  readonly sortOrder: 'asc' | 'desc';
  /** Fields to return. Default: all fields. */
  readonly select?: readonly Field[] | null | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/**
 * Returns one page of the matching assistants, and the total number of matching assistants on all pages.
 *
 * @throws ANSWER_TOO_LARGE
 */
export async function searchAssistants<Field extends keyof Assistant = keyof Assistant>(
  database: Sql,
  deploymentId: string,
  search: AssistantSearch<Field>,
): Promise<{ readonly assistants: readonly Pick<Assistant, Field>[]; readonly total: number }> {
  const { sortBy, sortOrder, limit, offset, select, limitBytes } = search;
  const order = sortOrder === 'asc' ? 'ASC' : 'DESC';
  const [assistants, total] = await Promise.all([
    queryPageWithinLimit<Pick<Assistant, Field>>(
      database,
      `SELECT ${buildSelectList(assistantColumns, select)} FROM agents.assistants WHERE ${filterCondition}
       ORDER BY ${sortBy} ${order}, assistant_id ${order} LIMIT $6 OFFSET $7`,
      [...buildFilterParams(deploymentId, search), limit, offset],
      limitBytes,
    ),
    countAssistants(database, deploymentId, search),
  ]);
  return { assistants, total };
}

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
  }: PageRequest & {
    readonly metadata?: Readonly<Record<string, unknown>>;
    /** Maximum size of the page as JSON. Default: no limit. */
    readonly limitBytes?: number;
  },
): Promise<AssistantVersion[]> {
  requireStorableJson(metadata ?? null, ['body', 'metadata']);
  return queryPageWithinLimit<AssistantVersion>(
    database,
    `SELECT assistant_id, graph_id, name, description, config, context, metadata, version, created_at
     FROM agents.assistant_versions
     WHERE deployment_id = $1 AND assistant_id = $2 AND ($3::jsonb IS NULL OR metadata @> $3::jsonb)
     ORDER BY version DESC LIMIT $4 OFFSET $5`,
    [deploymentId, assistantId, metadata ?? null, limit, offset],
    limitBytes,
  );
}
