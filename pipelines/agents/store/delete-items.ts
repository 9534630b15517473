import type { Sql } from '../../../infra/postgres/database.ts';
import { labels, pathOf } from './item-columns.ts';
import type { StoreKey } from './store-item.ts';

/** Deletes items; one that is not there is no error. */
export async function deleteItems(sql: Sql, deploymentId: string, keys: readonly StoreKey[]): Promise<void> {
  if (keys.length === 0) return;
  await sql.execute(
    `WITH given AS MATERIALIZED (
       SELECT ${labels('labels_json')} AS namespace, key FROM unnest($2::text[], $3::text[]) AS item (labels_json, key)
     ),
     placed AS MATERIALIZED (SELECT ${pathOf('namespace')} AS path, namespace, key FROM given)
     DELETE FROM agents.store_items
     WHERE deployment_id = $1 AND (namespace_path, namespace, key) IN (SELECT path, namespace, key FROM placed)`,
    [deploymentId, keys.map(({ namespace }) => JSON.stringify(namespace)), keys.map(({ key }) => key)],
    { name: 'agents_delete_items' },
  );
}

/** Deletes what has run out, at most a thousand items; nobody sees them before, either. Repeat while the result, how many, is not 0. */
export function deleteExpiredItems(sql: Sql, deploymentId: string): Promise<number> {
  return sql.execute(
    `DELETE FROM agents.store_items WHERE deployment_id = $1 AND (namespace, key) IN (
       SELECT namespace, key FROM agents.store_items WHERE deployment_id = $1 AND expires_at <= now()
       LIMIT 1000 FOR UPDATE SKIP LOCKED
     )`,
    [deploymentId],
  );
}
