import type { Sql } from '../../../infra/postgres/database.ts';
import type { Assistant } from './assistant.ts';
import { assistantColumns } from './assistant-row.ts';
import { type AssistantFilter, countAssistants, filterParams, fitting } from './count-assistants.ts';

export interface AssistantSearch extends AssistantFilter {
  readonly sortBy: 'assistant_id' | 'graph_id' | 'name' | 'created_at' | 'updated_at';
  readonly sortOrder: 'asc' | 'desc';
  readonly limit: number;
  readonly offset: number;
}

/** Assistants that fit, and how many there are of them on all pages. */
export async function searchAssistants(
  database: Sql,
  organizationId: string,
  search: AssistantSearch,
): Promise<{ readonly assistants: readonly Assistant[]; readonly total: number }> {
  const { sortBy, sortOrder, limit, offset } = search;
  const order = sortOrder === 'asc' ? 'ASC' : 'DESC';
  const [assistants, total] = await Promise.all([
    database.query<Assistant>(
      `SELECT ${assistantColumns} FROM agents.assistants WHERE ${fitting}
       ORDER BY ${sortBy} ${order}, assistant_id ${order} LIMIT $6 OFFSET $7`,
      [...filterParams(organizationId, search), limit, offset],
    ),
    countAssistants(database, organizationId, search),
  ]);
  return { assistants, total };
}
