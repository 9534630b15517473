import type { Sql } from '../../../infra/postgres/database.ts';
import { pageWithin, selectedColumns } from '../page-within.ts';
import { countThreads, filterParams, matchingSql, type ThreadFilter } from './count-threads.ts';
import type { Thread } from './thread.ts';
import { shownColumns } from './thread-row.ts';

export interface ThreadSearch<Field extends keyof Thread = keyof Thread> extends ThreadFilter {
  readonly sortBy: 'thread_id' | 'status' | 'created_at' | 'updated_at' | 'state_updated_at';
  readonly sortOrder: 'asc' | 'desc';
  readonly limit: number;
  readonly offset: number;
  /** The fields to return. Default: all. */
  readonly fields?: readonly Field[] | undefined;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/**
 * Returns one page of the threads that match, without `ttl`, and their total number on all pages. @throws ANSWER_TOO_LARGE
 */
export async function searchThreads<Field extends keyof Thread = keyof Thread>(
  database: Sql,
  deploymentId: string,
  search: ThreadSearch<Field>,
): Promise<{ readonly threads: readonly Pick<Thread, Field>[]; readonly total: number }> {
  const { sortBy, sortOrder, limit, offset, fields, limitBytes } = search;
  const order = sortOrder === 'asc' ? 'ASC' : 'DESC';
  const params = filterParams(deploymentId, search);
  const [threads, total] = await Promise.all([
    pageWithin<Pick<Thread, Field>>(
      database,
      `SELECT ${selectedColumns(shownColumns, fields)} FROM agents.threads WHERE ${matchingSql}
       ORDER BY ${sortBy} ${order}, thread_id ${order} LIMIT $6 OFFSET $7`,
      [...params, limit, offset],
      limitBytes,
    ),
    countThreads(database, deploymentId, search),
  ]);
  return { threads, total };
}
