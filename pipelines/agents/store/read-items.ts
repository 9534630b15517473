import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { PageRequest } from '../../../infra/postgres/list-page.ts';
import { queryPageWithinLimit } from '../../../infra/postgres/page-within.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import { toJsonbText } from '../checkpoints/stored-tuples.ts';
import {
  Conditions,
  type FoundItem,
  itemColumns,
  labelsSql,
  namespacePathSql,
  notExpiredCondition,
  type StoreConfig,
  type StoreItem,
  type StoreKey,
} from './store-item.ts';
import { embedTexts } from './write-items.ts';

/** Reads items, in the order of `keys`; null for an item that does not exist. With `refresh` their TTL restarts. */
export async function getItems(
  sql: Sql,
  deploymentId: string,
  keys: readonly StoreKey[],
  refresh: boolean,
): Promise<(StoreItem | null)[]> {
  if (keys.length === 0) return [];
  const rows = await sql.query<StoreItem>(
    getItemsSql,
    [deploymentId, keys.map(({ namespace }) => JSON.stringify(namespace)), keys.map(({ key }) => key), refresh],
    { name: 'agents_get_items' },
  );
  const found = new Map(rows.map((row) => [JSON.stringify([row.namespace, row.key]), row]));
  return keys.map(({ namespace, key }) => found.get(JSON.stringify([namespace, key])) ?? null);
}

const getItemsSql = `
WITH given AS MATERIALIZED (
  SELECT ${labelsSql} AS namespace, key FROM unnest($2::text[], $3::text[]) AS item (labels_json, key)
),
placed AS MATERIALIZED (SELECT ${namespacePathSql} AS path, namespace, key FROM given),
refreshed AS (
  UPDATE agents.store_items SET expires_at = now() + ttl_minutes * interval '1 minute'
  WHERE deployment_id = $1 AND (namespace_path, namespace, key) IN (SELECT path, namespace, key FROM placed)
    AND ttl_minutes IS NOT NULL AND ${notExpiredCondition} AND $4::boolean
)
SELECT ${itemColumns} FROM agents.store_items
WHERE deployment_id = $1 AND (namespace_path, namespace, key) IN (SELECT path, namespace, key FROM placed) AND ${notExpiredCondition}`;

/** Size of a value for which a response does not reserve memory: measuring its parts takes Postgres several milliseconds. */
const unreservedBytes = 1024 * 1024;

/**
 * Reads an item for a response, which reserves memory if the item is large; null if it does not exist. With `refresh` its
 * TTL restarts.
 */
export async function readItem(
  sql: Sql,
  deploymentId: string,
  { namespace, key }: StoreKey,
  refresh: boolean,
): Promise<StoreItem | null> {
  const conditions = new Conditions(deploymentId, namespace, key);
  const from = `FROM agents.store_items WHERE deployment_id = $1 AND key = $3
    AND namespace_path = (SELECT agents.namespace_path($2::text[])) AND namespace = $2::text[] AND ${notExpiredCondition}`;
  const [size] = await sql.query<{ bytes: number }>(
    `SELECT octet_length(value::text) AS bytes ${from}`,
    conditions.values,
    { name: 'agents_item_size' },
  );
  if (size === undefined) return null;
  if (size.bytes <= unreservedBytes) return (await getItems(sql, deploymentId, [{ namespace, key }], refresh))[0]!;
  const [item] = await readPage(sql, `SELECT ${itemColumns} ${from}`, conditions, { refresh });
  return item ?? null;
}

const comparisonOperators = new Map(Object.entries({ $gt: '>', $gte: '>=', $lt: '<', $lte: '<=' }));

/**
 * Adds the conditions of a filter on item values. Each field has a value that it must equal, or an object with the
 * operators `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in` and `$nin`. Ordering comparisons match only values of the
 * same JSON type. A missing field matches only `$ne` and `$nin`. An operand of `$in` and `$nin` that is not a list is
 * an empty list.
 *
 * @throws STORE_FILTER_INVALID for any other operator
 */
function filterItems(conditions: Conditions, filter: Readonly<Record<string, unknown>>): void {
  for (const [field, filterValue] of Object.entries(filter)) {
    const value = `(searchable -> ${conditions.bind(field.replaceAll('\0', ''))}::text)`;
    const operators = parseOperators(filterValue) ?? { $eq: filterValue };
    for (const [operator, operand] of Object.entries(operators)) {
      const isList = operator === '$in' || operator === '$nin';
      const compared = isList && !Array.isArray(operand) ? [] : (operand ?? null);
      const given = `${conditions.bind(toJsonbText(JSON.stringify(compared)))}::jsonb`;
      const comparison = comparisonOperators.get(operator);
      if (operator === '$eq') conditions.add(`${value} = ${given}`);
      else if (operator === '$ne') conditions.add(`${value} IS DISTINCT FROM ${given}`);
      else if (isList) {
        const isIn = `coalesce(${value} = ANY (ARRAY(SELECT jsonb_array_elements(${given}))), false)`;
        conditions.add(operator === '$in' ? isIn : `NOT ${isIn}`);
      } else if (comparison !== undefined)
        conditions.add(`(jsonb_typeof(${value}) = jsonb_typeof(${given}) AND ${value} ${comparison} ${given})`);
      else throw runlakeError('STORE_FILTER_INVALID', { field, operator });
    }
  }
}

function parseOperators(value: unknown): Readonly<Record<string, unknown>> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const names = Object.keys(value);
  return names.length > 0 && names.some((name) => name.startsWith('$'))
    ? (value as Record<string, unknown>)
    : undefined;
}

interface ItemSearch extends PageRequest {
  /** Prefix of the namespaces to search. If empty, all namespaces are searched. */
  readonly namespacePrefix: readonly string[];
  readonly filter?: Readonly<Record<string, unknown>> | undefined;
  /** Filter of custom authentication. */
  readonly required?: RequiredMetadata | undefined;
  /**
   * Text to which similar items are sorted first; items without indexed text come last. Ignored if the store has no
   * index.
   */
  readonly query?: string | undefined;
  /** Whether the TTL of the returned items restarts. */
  readonly refresh: boolean;
  /** Maximum size of the page as JSON. Default: no limit. */
  readonly limitBytes?: number;
}

/**
 * Maximum number of vectors that a search compares with the query. A search compares all candidates, so that its result
 * is exact.
 */
const maxComparedVectors = 10_000;

/**
 * Searches the items below a namespace prefix. Sorts them by similarity if there is a query and an index, otherwise by
 * the time of their last update, newest first.
 *
 * @throws STORE_FILTER_INVALID, STORE_TOO_MANY_VECTORS, STORE_EMBEDDER_UNUSABLE, ANSWER_TOO_LARGE
 */
export async function searchItems(
  sql: Sql,
  deploymentId: string,
  config: StoreConfig,
  search: ItemSearch,
): Promise<FoundItem[]> {
  const conditions = new Conditions(deploymentId);
  conditions.restrictToPrefix(search.namespacePrefix);
  filterItems(conditions, search.filter ?? {});
  conditions.requireMembers(search.required);
  const where = `deployment_id = $1 AND ${notExpiredCondition}${conditions.text}`;
  const [vector] = await embedTexts(config, search.query ? [search.query] : []);
  const page = () => `LIMIT ${conditions.bind(search.limit)} OFFSET ${conditions.bind(search.offset)}`;
  if (vector === undefined) {
    const orderSql = 'ORDER BY store_items.updated_at DESC, namespace, key';
    return readPage(
      sql,
      `SELECT ${itemColumns} FROM agents.store_items WHERE ${where} ${orderSql} ${page()}`,
      conditions,
      search,
    );
  }
  const dims = conditions.bind(vector.length);
  const vectorsOfItem = `agents.store_vectors v WHERE v.deployment_id = i.deployment_id
    AND v.namespace_path = i.namespace_path AND v.key = i.key AND array_length(v.embedding, 1) = ${dims}`;
  // OFFSET makes Postgres look up the vectors of each item. If its statistics do not know the deployment yet, it
  // otherwise compares all items with all vectors.
  const [counted] = await sql.query<{ vectors: number }>(
    `SELECT count(*)::int AS vectors FROM (
       SELECT FROM (SELECT * FROM agents.store_items WHERE ${where}) i, LATERAL (SELECT FROM ${vectorsOfItem} OFFSET 0) own
       LIMIT ${maxComparedVectors + 1}
     ) found`,
    conditions.values,
  );
  if (counted!.vectors > maxComparedVectors)
    throw runlakeError('STORE_TOO_MANY_VECTORS', { limit: maxComparedVectors });
  const similaritySql = `SELECT sum(a * b) FROM unnest(embedding, ${conditions.bind(`{${vector.join(',')}}`)}::real[]) AS pair (a, b)`;
  const scoredItemsSql = `SELECT *, (
      SELECT max((${similaritySql})) FROM ${vectorsOfItem}
    ) AS score
    FROM agents.store_items i WHERE ${where}`;
  return readPage(
    sql,
    `SELECT ${itemColumns}, score FROM (${scoredItemsSql}) store_items
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
  const rows = await queryPageWithinLimit<FoundItem & { score?: number | null }>(
    sql,
    page,
    [...values, refresh],
    limitBytes,
    {
      cte: `placed AS MATERIALIZED (SELECT ${namespacePathSql} AS path, key FROM page),
     refreshed AS (
       UPDATE agents.store_items SET expires_at = now() + ttl_minutes * interval '1 minute'
       WHERE deployment_id = $1
         AND (namespace_path, key) IN (SELECT path, key FROM placed) AND ttl_minutes IS NOT NULL AND $${values.length + 1}::boolean AND (SELECT page_fits FROM measured)
     )`,
    },
  );
  return rows.map(({ score, ...item }) => ({ ...item, ...(typeof score === 'number' && { score }) }));
}

interface NamespaceSearch extends PageRequest {
  /** Labels that namespaces begin or end with; `*` stands for any label. */
  readonly matches: readonly { readonly side: 'prefix' | 'suffix'; readonly labels: readonly string[] }[];
  /** Maximum number of labels; longer namespaces are truncated. */
  readonly maxDepth?: number | undefined;
  /** Filter of custom authentication. Only namespaces with an item that matches the filter are returned. */
  readonly required?: RequiredMetadata | undefined;
}

/** Lists the distinct namespaces that have items, sorted by their labels. */
export async function listNamespaces(sql: Sql, deploymentId: string, search: NamespaceSearch): Promise<string[][]> {
  const conditions = new Conditions(deploymentId);
  for (const { side, labels } of search.matches) {
    conditions.add(`cardinality(namespace) >= ${conditions.bind(labels.length)}`);
    for (const [index, label] of labels.entries()) {
      if (label === '*') continue;
      const at = side === 'prefix' ? `${index + 1}` : `cardinality(namespace) - ${labels.length - index - 1}`;
      conditions.add(`namespace[${at}] = ${conditions.bind(label.replaceAll('\0', ''))}`);
    }
    const wildcardIndex = labels.indexOf('*');
    if (side === 'prefix') conditions.restrictToPrefix(wildcardIndex < 0 ? labels : labels.slice(0, wildcardIndex));
  }
  conditions.requireMembers(search.required);
  const cut = search.maxDepth === undefined ? 'namespace' : `namespace[1:${conditions.bind(search.maxDepth)}::int]`;
  const rows = await sql.query<{ namespace: string[] }>(
    `SELECT DISTINCT ${cut} AS namespace FROM agents.store_items WHERE deployment_id = $1 AND ${notExpiredCondition}${conditions.text}
     ORDER BY 1 LIMIT ${conditions.bind(search.limit)} OFFSET ${conditions.bind(search.offset)}`,
    conditions.values,
  );
  return rows.map(({ namespace }) => namespace);
}
