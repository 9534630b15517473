import type { Sql } from '../../../infra/postgres/database.ts';
import { countThreads, filterParams, fitting, type ThreadFilter } from './count-threads.ts';
import type { Thread } from './thread.ts';
import { type ThreadRow, threadColumns, toThread } from './thread-row.ts';

export interface ThreadSearch extends ThreadFilter {
  readonly sortBy: 'thread_id' | 'status' | 'created_at' | 'updated_at' | 'state_updated_at';
  readonly sortOrder: 'asc' | 'desc';
  readonly limit: number;
  readonly offset: number;
}

/** Threads that fit, and how many there are of them on all pages. */
export async function searchThreads(
  database: Sql,
  organizationId: string,
  search: ThreadSearch,
): Promise<{ readonly threads: readonly Thread[]; readonly total: number }> {
  const { sortBy, sortOrder, limit, offset } = search;
  const order = sortOrder === 'asc' ? 'ASC' : 'DESC';
  const params = filterParams(organizationId, search);
  const [rows, total] = await Promise.all([
    database.query<ThreadRow>(
      `SELECT ${threadColumns} FROM agents.threads WHERE ${fitting}
       ORDER BY ${sortBy} ${order}, thread_id ${order} LIMIT $6 OFFSET $7`,
      [...params, limit, offset],
    ),
    countThreads(database, organizationId, search),
  ]);
  return { threads: rows.map(toThread), total };
}
