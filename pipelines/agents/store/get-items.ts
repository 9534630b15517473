import type { Sql } from '../../../infra/postgres/database.ts';
import { itemColumns, labels, live, namespacePath } from './item-columns.ts';
import type { StoreItem, StoreKey } from './store-item.ts';

/** Reads items, in the order of `keys`; null for an item that does not exist. With `refresh` their TTL restarts. */
export async function getItems(
  sql: Sql,
  deploymentId: string,
  keys: readonly StoreKey[],
  refresh: boolean,
): Promise<(StoreItem | null)[]> {
  if (keys.length === 0) return [];
  const rows = await sql.query<StoreItem>(
    getSql,
    [deploymentId, keys.map(({ namespace }) => JSON.stringify(namespace)), keys.map(({ key }) => key), refresh],
    { name: 'agents_get_items' },
  );
  const found = new Map(rows.map((row) => [JSON.stringify([row.namespace, row.key]), row]));
  return keys.map(({ namespace, key }) => found.get(JSON.stringify([namespace, key])) ?? null);
}

const getSql = `
WITH given AS MATERIALIZED (
  SELECT ${labels('labels_json')} AS namespace, key FROM unnest($2::text[], $3::text[]) AS item (labels_json, key)
),
placed AS MATERIALIZED (SELECT ${namespacePath('namespace')} AS path, namespace, key FROM given),
refreshed AS (
  UPDATE agents.store_items SET expires_at = now() + ttl_minutes * interval '1 minute'
  WHERE deployment_id = $1 AND (namespace_path, namespace, key) IN (SELECT path, namespace, key FROM placed)
    AND ttl_minutes IS NOT NULL AND ${live} AND $4::boolean
)
SELECT ${itemColumns} FROM agents.store_items
WHERE deployment_id = $1 AND (namespace_path, namespace, key) IN (SELECT path, namespace, key FROM placed) AND ${live}`;
