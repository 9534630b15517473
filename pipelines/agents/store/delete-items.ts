import type { Sql } from '../../../infra/postgres/database.ts';
import { labels, namespacePath } from './item-columns.ts';
import type { StoreKey } from './store-item.ts';

/** Deletes items. Ignores keys that do not exist. */
export async function deleteItems(sql: Sql, deploymentId: string, keys: readonly StoreKey[]): Promise<void> {
  if (keys.length === 0) return;
  await sql.execute(
    `WITH given AS MATERIALIZED (
       SELECT ${labels('labels_json')} AS namespace, key FROM unnest($2::text[], $3::text[]) AS item (labels_json, key)
     ),
     placed AS MATERIALIZED (SELECT ${namespacePath('namespace')} AS path, namespace, key FROM given)
     DELETE FROM agents.store_items
     WHERE deployment_id = $1 AND (namespace_path, namespace, key) IN (SELECT path, namespace, key FROM placed)`,
    [deploymentId, keys.map(({ namespace }) => JSON.stringify(namespace)), keys.map(({ key }) => key)],
    { name: 'agents_delete_items' },
  );
}

/** Deletes up to 1,000 expired items, which reads already ignore. @returns how many; call it again until this is 0. */
export function deleteExpiredItems(sql: Sql, deploymentId: string): Promise<number> {
  return sql.execute(
    `DELETE FROM agents.store_items WHERE deployment_id = $1 AND (namespace, key) IN (
       SELECT namespace, key FROM agents.store_items WHERE deployment_id = $1 AND expires_at <= now()
       LIMIT 1000 FOR UPDATE SKIP LOCKED
     )`,
    [deploymentId],
  );
}
