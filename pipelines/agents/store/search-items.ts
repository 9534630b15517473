import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import { pageWithin } from '../page-within.ts';
import { filterItems } from './filter-items.ts';
import { Conditions, itemColumns, live, namespacePath } from './item-columns.ts';
import type { FoundItem, StoreRules } from './store-item.ts';
import { embedTexts } from './unit-vectors.ts';

export interface ItemSearch {
  /** Empty: all namespaces. */
  readonly namespacePrefix: readonly string[];
  readonly filter?: Readonly<Record<string, unknown>> | undefined;
  /** Filter of custom authentication. */
  readonly required?: RequiredMetadata | undefined;
  /** Sorts by similarity to this text, items without indexed text last. Ignored if the store has no index. */
  readonly query?: string | undefined;
  readonly limit: number;
  readonly offset: number;
  /** Whether the TTL of the returned items restarts. */
  readonly refresh: boolean;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/** Limits the cost of a search, which compares the query with every candidate vector to be exact. */
const maxVectors = 10_000;

/**
 * Searches the items below a namespace prefix. Sorts by similarity if there is a query and an index, otherwise last
 * updated first.
 *
 * @throws STORE_FILTER_INVALID, STORE_TOO_MANY_VECTORS, STORE_EMBEDDER_UNUSABLE, ANSWER_TOO_LARGE
 */
export async function searchItems(
  sql: Sql,
  deploymentId: string,
  rules: StoreRules,
  search: ItemSearch,
): Promise<FoundItem[]> {
  const conditions = new Conditions(deploymentId);
  conditions.under(search.namespacePrefix);
  filterItems(conditions, search.filter ?? {});
  conditions.holding(search.required);
  const where = `deployment_id = $1 AND ${live}${conditions.text}`;
  const [vector] = await embedTexts(rules, search.query ? [search.query] : []);
  const page = () => `LIMIT ${conditions.bind(search.limit)} OFFSET ${conditions.bind(search.offset)}`;
  if (vector === undefined) {
    const inOrder = 'ORDER BY store_items.updated_at DESC, namespace, key';
    return readPage(
      sql,
      `SELECT ${itemColumns} FROM agents.store_items WHERE ${where} ${inOrder} ${page()}`,
      conditions,
      search,
    );
  }
  const dims = `array_length(embedding, 1) = ${conditions.bind(vector.length)}`;
  const [counted] = await sql.query<{ vectors: number }>(
    `SELECT count(*)::int AS vectors FROM (
       SELECT FROM agents.store_items JOIN agents.store_vectors USING (deployment_id, namespace_path, namespace, key)
       WHERE ${where} AND ${dims} LIMIT ${maxVectors + 1}
     ) found`,
    conditions.values,
  );
  if (counted!.vectors > maxVectors) throw runlakeError('STORE_TOO_MANY_VECTORS', { limit: maxVectors });
  const product = `SELECT sum(a * b) FROM unnest(embedding, ${conditions.bind(`{${vector.join(',')}}`)}::real[]) AS pair (a, b)`;
  const scored = `SELECT *, (
      SELECT max((${product})) FROM agents.store_vectors v
      WHERE v.deployment_id = i.deployment_id AND v.namespace_path = i.namespace_path AND v.key = i.key AND ${dims}
    ) AS score
    FROM agents.store_items i WHERE ${where}`;
  return readPage(
    sql,
    `SELECT ${itemColumns}, score FROM (${scored}) store_items
     ORDER BY score DESC NULLS LAST, store_items.updated_at DESC, namespace, key ${page()}`,
    conditions,
    search,
  );
}

/** Reads a page and, with `refresh`, restarts the TTL of its items in the same statement. */
async function readPage(
  sql: Sql,
  page: string,
  { values }: Conditions,
  { refresh, limitBytes }: Pick<ItemSearch, 'refresh' | 'limitBytes'>,
): Promise<FoundItem[]> {
  const rows = await pageWithin<FoundItem & { score?: number | null }>(sql, page, [...values, refresh], limitBytes, {
    cte: `placed AS MATERIALIZED (SELECT ${namespacePath('namespace')} AS path, key FROM page),
     refreshed AS (
       UPDATE agents.store_items SET expires_at = now() + ttl_minutes * interval '1 minute'
       WHERE deployment_id = $1
         AND (namespace_path, key) IN (SELECT path, key FROM placed) AND ttl_minutes IS NOT NULL AND $${values.length + 1}::boolean AND (SELECT page_fits FROM measured)
     )`,
  });
  return rows.map(({ score, ...item }) => ({ ...item, ...(typeof score === 'number' && { score }) }));
}
