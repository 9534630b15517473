import type { Sql } from '../../../infra/postgres/database.ts';
import { pageWithin, selectedColumns } from '../page-within.ts';
import type { Assistant } from './assistant.ts';
import { assistantColumns } from './assistant-row.ts';
import { type AssistantFilter, countAssistants, filterParams, matchingSql } from './count-assistants.ts';

export interface AssistantSearch<Field extends keyof Assistant = keyof Assistant> extends AssistantFilter {
  readonly sortBy: 'assistant_id' | 'graph_id' | 'name' | 'created_at' | 'updated_at';
  readonly sortOrder: 'asc' | 'desc';
  readonly limit: number;
  readonly offset: number;
  /** Default: all fields. */
  readonly select?: readonly Field[] | null | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/** Returns one page of the assistants that match, and their total number on all pages. @throws ANSWER_TOO_LARGE */
export async function searchAssistants<Field extends keyof Assistant = keyof Assistant>(
  database: Sql,
  deploymentId: string,
  search: AssistantSearch<Field>,
): Promise<{ readonly assistants: readonly Pick<Assistant, Field>[]; readonly total: number }> {
  const { sortBy, sortOrder, limit, offset, select, limitBytes } = search;
  const order = sortOrder === 'asc' ? 'ASC' : 'DESC';
  const [assistants, total] = await Promise.all([
    pageWithin<Pick<Assistant, Field>>(
      database,
      `SELECT ${selectedColumns(assistantColumns, select)} FROM agents.assistants WHERE ${matchingSql}
       ORDER BY ${sortBy} ${order}, assistant_id ${order} LIMIT $6 OFFSET $7`,
      [...filterParams(deploymentId, search), limit, offset],
      limitBytes,
    ),
    countAssistants(database, deploymentId, search),
  ]);
  return { assistants, total };
}
