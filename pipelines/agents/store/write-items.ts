import { isRunlakeError, type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { getSqlState } from '../../../infra/postgres/database-error.ts';
import { toJsonbText } from '../checkpoints/stored-tuples.ts';
import {
  checkKey,
  checkNamespace,
  labelsSql,
  namespacePathSql,
  type StoreConfig,
  type StoreKey,
} from './store-item.ts';

interface TextAtPath {
  /** Path of the text. If the path matches several texts, it ends with the index of the text. */
  readonly path: string;
  readonly text: string;
}

/** Maximum number of indexed texts of an item. */
const maxTexts = 10_000;
/** Maximum number of values that the paths of an item visit. It limits the time of paths that find few texts. */
const maxVisitedValues = 1_000_000;

/**
 * Returns the texts of a value that are indexed: the texts at `paths` or, by default, at `fields`. Returns no texts if
 * `paths` is false or there is no index. A path consists of field names separated by dots; `[2]`, `[-1]` and `[*]`
 * select elements of a list; `$` is the whole value as JSON. Values that are not text are ignored, and so are paths with
 * the same steps as another one.
 *
 * @throws STORE_TOO_MANY_TEXTS
 */
function collectTexts({ key, value, index: paths }: NewItem, fields: readonly string[] | undefined): TextAtPath[] {
  if (fields === undefined || paths === false) return [];
  const stepsByPath = new Map<string, readonly string[]>();
  const known = new Set<string>();
  for (const path of paths ?? fields) {
    const steps = path.match(/[^.[\]]+|\[[^\]]*\]/g) ?? [];
    const id = path === '$' ? path : JSON.stringify(steps);
    if (!known.has(id)) stepsByPath.set(path, steps);
    known.add(id);
  }
  const collected: TextAtPath[] = [];
  let visited = 0;
  const rejectIfAbove = (count: number, limit: number, what: string) => {
    if (count > limit) throw runlakeError('STORE_TOO_MANY_TEXTS', { key, limit, what });
  };
  for (const [path, steps] of stepsByPath) {
    let found: readonly unknown[] = [value];
    for (const step of path === '$' ? [] : steps) {
      found = followStep(found, step);
      visited += found.length;
      rejectIfAbove(visited, maxVisitedValues, 'values');
    }
    const texts = (path === '$' ? [JSON.stringify(value)] : found).filter(
      (text): text is string => typeof text === 'string' && text !== '',
    );
    rejectIfAbove(collected.length + texts.length, maxTexts, 'texts');
    for (const [index, text] of texts.entries())
      collected.push({ path: texts.length > 1 ? `${path}.${index}` : path, text });
  }
  return collected;
}

function followStep(from: readonly unknown[], step: string): readonly unknown[] {
  return from.flatMap((value): readonly unknown[] => {
    if (typeof value !== 'object' || value === null) return [];
    if (!step.startsWith('[')) return Object.hasOwn(value, step) ? [(value as Record<string, unknown>)[step]] : [];
    if (!Array.isArray(value)) return [];
    return step === '[*]' ? value : [value.at(Number(step.slice(1, -1)))];
  });
}

export function createUnusableEmbedderError(reason: string, cause?: unknown): RunlakeError {
  return runlakeError('STORE_EMBEDDER_UNUSABLE', { reason }, { cause });
}

/**
 * Embeds texts as unit vectors, so that the dot product of two vectors is their cosine similarity. Returns no vectors
 * if there is no index.
 *
 * @throws STORE_EMBEDDER_UNUSABLE if the embedder throws or returns vectors of the wrong number or length; errors of
 *   the worker.
 */
export async function embedTexts({ index }: StoreConfig, texts: readonly string[]): Promise<number[][]> {
  if (index === undefined || texts.length === 0) return [];
  const distinctTexts = [...new Set(texts)];
  const vectors = await index.embed(distinctTexts).catch((error) => {
    if (isRunlakeError(error)) throw error;
    throw createUnusableEmbedderError(error instanceof Error ? error.message : String(error), error);
  });
  if (vectors.length !== distinctTexts.length)
    throw createUnusableEmbedderError(`it returned ${vectors.length} vectors for ${distinctTexts.length} texts`);
  const vectorsByText = new Map(
    distinctTexts.map((text, order) => [text, normaliseVector(vectors[order]!, index.dims)]),
  );
  return texts.map((text) => vectorsByText.get(text)!);
}

function normaliseVector(vector: readonly number[], dims: number): number[] {
  if (vector.length !== dims)
    throw createUnusableEmbedderError(`it returned a vector of ${vector.length} dimensions, not ${dims}`);
  const length = Math.hypot(...vector);
  if (!Number.isFinite(length))
    throw createUnusableEmbedderError('it returned a vector with an element that is not a finite number');
  // Postgres refuses numbers that a `real` cannot represent.
  return vector.map((number) => (length === 0 ? 0 : Math.fround(number / length)));
}

interface NewItem extends StoreKey {
  readonly value: Readonly<Record<string, unknown>>;
  /** Paths to index instead of the default paths. If false, the item is not indexed. */
  readonly index?: false | readonly string[] | undefined;
  /** Minutes until the item expires. If null, it never expires; if undefined, the default of the store applies. */
  readonly ttl?: number | null | undefined;
}

/**
 * Stores items in one statement; each replaces an item with the same key. If `items` contains a key twice, the last
 * item is stored.
 *
 * @throws STORE_NAMESPACE_INVALID, STORE_KEY_INVALID, STORE_TOO_MANY_TEXTS, STORE_EMBEDDER_UNUSABLE
 */
export async function putItems(
  sql: Sql,
  deploymentId: string,
  config: StoreConfig,
  items: readonly NewItem[],
): Promise<void> {
  for (const { namespace, key } of items) {
    checkNamespace(namespace);
    checkKey(key);
  }
  // Statements that lock the same rows in different orders would deadlock.
  const last = [...new Map(items.map((item) => [JSON.stringify([item.namespace, item.key]), item]))]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([, item]) => item);
  if (last.length === 0) return;
  const texts = last.flatMap((item, itemIndex) =>
    collectTexts(item, config.index?.fields).map((text) => ({ ...text, itemIndex })),
  );
  const vectors = await embedTexts(
    config,
    texts.map(({ text }) => text),
  );
  const values = last.map((item) => JSON.stringify(item.value));
  const stored = sql.execute(
    putItemsSql,
    [
      deploymentId,
      last.map((item) => JSON.stringify(item.namespace)),
      last.map((item) => item.key),
      values,
      values.map(toJsonbText),
      last.map((item) => (item.ttl === undefined ? (config.defaultTtlMinutes ?? null) : item.ttl)),
      texts.map(({ itemIndex }) => itemIndex + 1),
      texts.map(({ path }) => path),
      vectors.map((vector) => `{${vector.join(',')}}`),
    ],
    { name: 'agents_put_items' },
  );
  await stored.catch((error: unknown) => {
    if (getSqlState(error) !== limitExceededState) throw error;
    // Postgres compresses the entries of an index, so only Postgres knows which of several items is refused.
    const [longest] = last.toSorted((one, other) => countKeyCharacters(other) - countKeyCharacters(one));
    const reason = 'together with its namespace and index paths, it is too long for an index of Postgres';
    throw runlakeError('STORE_KEY_INVALID', { key: longest!.key.slice(0, 100), reason });
  });
}

/** SQLSTATE of an entry that is too long for an index. */
const limitExceededState = '54000';
const countKeyCharacters = ({ namespace, key }: StoreKey) => namespace.join('.').length + key.length;

/**
 * Statement that stores items. It deletes only vectors that it does not replace, because two of its CTEs must not
 * change the same row.
 */
const putItemsSql = `
WITH given AS MATERIALIZED (
  SELECT ordinality, ${labelsSql} AS namespace, key, value, searchable, ttl
  FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::float8[])
    WITH ORDINALITY AS item (labels_json, key, value, searchable, ttl, ordinality)
),
placed AS MATERIALIZED (SELECT ${namespacePathSql} AS path, key FROM given),
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

/** Deletes items. Ignores keys that do not exist. */
export async function deleteItems(sql: Sql, deploymentId: string, keys: readonly StoreKey[]): Promise<void> {
  if (keys.length === 0) return;
  await sql.execute(
    `WITH given AS MATERIALIZED (
       SELECT ${labelsSql} AS namespace, key FROM unnest($2::text[], $3::text[]) AS item (labels_json, key)
     ),
     placed AS MATERIALIZED (SELECT ${namespacePathSql} AS path, namespace, key FROM given)
     DELETE FROM agents.store_items
     WHERE deployment_id = $1 AND (namespace_path, namespace, key) IN (SELECT path, namespace, key FROM placed)`,
    [deploymentId, keys.map(({ namespace }) => JSON.stringify(namespace)), keys.map(({ key }) => key)],
    { name: 'agents_delete_items' },
  );
}

/**
 * Deletes up to 1,000 expired items, which reads already ignore. @returns how many; call it again until it returns 0.
 */
export function deleteExpiredItems(sql: Sql, deploymentId: string): Promise<number> {
  return sql.execute(
    `DELETE FROM agents.store_items WHERE deployment_id = $1 AND (namespace, key) IN (
       SELECT namespace, key FROM agents.store_items WHERE deployment_id = $1 AND expires_at <= now()
       LIMIT 1000 FOR UPDATE SKIP LOCKED
     )`,
    [deploymentId],
  );
}

/**
 * Returns the length of any stored vector that does not have `dims` dimensions; undefined if there is none. Searches
 * ignore such vectors.
 */
export async function findMismatchedVectorLength(
  sql: Sql,
  deploymentId: string,
  dims: number,
): Promise<number | undefined> {
  const [found] = await sql.query<{ numbers: number }>(
    `SELECT cardinality(embedding) AS numbers FROM agents.store_vectors
     WHERE deployment_id = $1 AND cardinality(embedding) <> $2 LIMIT 1`,
    [deploymentId, dims],
  );
  return found?.numbers;
}
