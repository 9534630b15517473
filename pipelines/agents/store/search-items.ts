import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import { pageWithin } from '../page-within.ts';
import { filterItems } from './filter-items.ts';
import { Conditions, itemColumns, live, pathOf } from './item-columns.ts';
import type { FoundItem, StoreRules } from './store-item.ts';
import { embedTexts } from './unit-vectors.ts';

export interface ItemSearch {
  /** Empty: everywhere. */
  readonly namespacePrefix: readonly string[];
  readonly filter?: Readonly<Record<string, unknown>> | undefined;
  /** What a filter of custom authentication asks of items. */
  readonly required?: RequiredMetadata | undefined;
  /** Ranks by meaning, nearest first; items without text in the index come last. Ignored where there is no index. */
  readonly query?: string | undefined;
  readonly limit: number;
  readonly offset: number;
  readonly refresh: boolean;
  /** Default: as many as there are. */
  readonly limitBytes?: number;
}

/** Each is compared, so that the answer is exact. */
const mostVectors = 10_000;

/**
 * Items below a prefix of labels, last changed first, or by their nearness to a query.
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
    return answer(
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
       WHERE ${where} AND ${dims} LIMIT ${mostVectors + 1}
     ) found`,
    conditions.values,
  );
  if (counted!.vectors > mostVectors) throw fault('STORE_TOO_MANY_VECTORS', { limit: mostVectors });
  const product = `SELECT sum(a * b) FROM unnest(embedding, ${conditions.bind(`{${vector.join(',')}}`)}::real[]) AS pair (a, b)`;
  const scored = `SELECT *, (
      SELECT max((${product})) FROM agents.store_vectors v
      WHERE v.deployment_id = i.deployment_id AND v.namespace_path = i.namespace_path AND v.key = i.key AND ${dims}
    ) AS score
    FROM agents.store_items i WHERE ${where}`;
  return answer(
    sql,
    `SELECT ${itemColumns}, score FROM (${scored}) store_items
     ORDER BY score DESC NULLS LAST, store_items.updated_at DESC, namespace, key ${page()}`,
    conditions,
    search,
  );
}

async function answer(
  sql: Sql,
  found: string,
  { values }: Conditions,
  { refresh, limitBytes }: Pick<ItemSearch, 'refresh' | 'limitBytes'>,
): Promise<FoundItem[]> {
  const rows = await pageWithin<FoundItem & { score?: number | null }>(sql, found, [...values, refresh], limitBytes, {
    beside: `placed AS MATERIALIZED (SELECT ${pathOf('namespace')} AS path, key FROM page),
     refreshed AS (
       UPDATE agents.store_items SET expires_at = now() + ttl_minutes * interval '1 minute'
       WHERE deployment_id = $1
         AND (namespace_path, key) IN (SELECT path, key FROM placed) AND ttl_minutes IS NOT NULL AND $${values.length + 1}::boolean AND (SELECT page_fits FROM measured)
     )`,
  });
  return rows.map(({ score, ...item }) => ({ ...item, ...(typeof score === 'number' && { score }) }));
}
