import type { Sql } from '../../../infra/postgres/database.ts';
import { jsonbText } from '../checkpoints/jsonb-text.ts';
import { labels, namespacePath } from './item-columns.ts';
import { checkKey, checkNamespace, type StoreKey, type StoreRules } from './store-item.ts';
import { textsOfItem } from './texts-of-item.ts';
import { embedTexts } from './unit-vectors.ts';

export interface NewItem extends StoreKey {
  readonly value: Readonly<Record<string, unknown>>;
  /** Paths to index instead of the default ones; false: do not index the item. */
  readonly index?: false | readonly string[] | undefined;
  /** Minutes until it expires. Null: never. Undefined: the default of the rules. */
  readonly ttl?: number | null | undefined;
}

/**
 * Stores items in one statement; each replaces an item with the same key. If `items` contains a key twice, the last one
 * is stored.
 *
 * @throws STORE_NAMESPACE_INVALID, STORE_KEY_INVALID, STORE_EMBEDDER_UNUSABLE
 */
export async function putItems(
  sql: Sql,
  deploymentId: string,
  rules: StoreRules,
  items: readonly NewItem[],
): Promise<void> {
  for (const { namespace, key } of items) {
    checkNamespace(namespace);
    checkKey(key);
  }
  const last = [...new Map(items.map((item) => [JSON.stringify([item.namespace, item.key]), item])).values()];
  if (last.length === 0) return;
  const texts = last.flatMap((item, itemIndex) =>
    textsOfItem(item.value, rules.index?.fields, item.index).map((text) => ({ ...text, itemIndex })),
  );
  const vectors = await embedTexts(
    rules,
    texts.map(({ text }) => text),
  );
  const values = last.map((item) => JSON.stringify(item.value));
  await sql.execute(
    putSql,
    [
      deploymentId,
      last.map((item) => JSON.stringify(item.namespace)),
      last.map((item) => item.key),
      values,
      values.map(jsonbText),
      last.map((item) => (item.ttl === undefined ? (rules.defaultTtlMinutes ?? null) : item.ttl)),
      texts.map(({ itemIndex }) => itemIndex + 1),
      texts.map(({ path }) => path),
      vectors.map((vector) => `{${vector.join(',')}}`),
    ],
    { name: 'agents_put_items' },
  );
}

/** Deletes only vectors that it does not replace, because two CTEs of one statement must not change the same row. */
const putSql = `
WITH given AS MATERIALIZED (
  SELECT ordinality, ${labels('labels_json')} AS namespace, key, value, searchable, ttl
  FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::float8[])
    WITH ORDINALITY AS item (labels_json, key, value, searchable, ttl, ordinality)
),
placed AS MATERIALIZED (SELECT ${namespacePath('namespace')} AS path, key FROM given),
vectors AS MATERIALIZED (
  SELECT given.namespace, given.key, vector.path, vector.embedding::real[] AS embedding
  FROM unnest($7::int[], $8::text[], $9::text[]) AS vector (ordinality, path, embedding) JOIN given USING (ordinality)
),
items AS (
  INSERT INTO agents.store_items (deployment_id, namespace, key, value, searchable, ttl_minutes, expires_at)
  SELECT $1, namespace, key, value::json, searchable::jsonb, ttl, now() + ttl * interval '1 minute' FROM given
  ON CONFLICT (deployment_id, namespace, key) DO UPDATE SET value = EXCLUDED.value, searchable = EXCLUDED.searchable,
    ttl_minutes = EXCLUDED.ttl_minutes, expires_at = EXCLUDED.expires_at, updated_at = now()
),
gone AS (
  DELETE FROM agents.store_vectors old USING placed
  WHERE old.deployment_id = $1 AND old.namespace_path = placed.path AND old.key = placed.key
    AND NOT EXISTS (
      SELECT FROM vectors
      WHERE vectors.namespace = old.namespace AND vectors.key = old.key AND vectors.path = old.path
    )
)
INSERT INTO agents.store_vectors (deployment_id, namespace, key, path, embedding)
SELECT $1, namespace, key, path, embedding FROM vectors
ON CONFLICT (deployment_id, namespace, key, path) DO UPDATE SET embedding = EXCLUDED.embedding`;
