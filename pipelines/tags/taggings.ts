/** Assignments of tags to resources. A tagging of a deleted resource is not returned. */
import { randomUUID } from 'node:crypto';
import { groupBy } from '../../infra/collections/group-by.ts';
import { internals } from '../../infra/config/internals.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { reserveMemory } from '../../infra/fairness/tenant-context.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { queryPageWithinLimit, requireWithin } from '../../infra/postgres/page-within.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import { listTagKeys, listTagValues, type TagKey, type TagValue } from './tags.ts';

const taggingLimit = {
  max: 10_000,
  countSql: 'SELECT count(*) AS count FROM taggings WHERE tag_value_id = $1',
  what: 'resources with a tag value',
};

export const resourceTypes = [
  'project',
  'experiment',
  'dataset',
  'prompt',
  'queue',
  'deployment',
  'evaluator',
] as const;
export type ResourceType = (typeof resourceTypes)[number];

/** SQL for each resource type: id and name of the resources of the workspace `$1`. */
const resourcesSql: Readonly<Record<ResourceType, string>> = {
  project: `SELECT id, name FROM projects
    WHERE workspace_id = $1 AND deleted_at IS NULL AND reference_dataset_id IS NULL`,
  experiment: `SELECT id, name FROM projects
    WHERE workspace_id = $1 AND deleted_at IS NULL AND reference_dataset_id IS NOT NULL`,
  dataset: 'SELECT id, name FROM datasets WHERE workspace_id = $1',
  prompt: 'SELECT id, handle AS name FROM repos WHERE workspace_id = $1',
  queue: 'SELECT id, name FROM annotation_queues WHERE workspace_id = $1',
  deployment: 'SELECT deployment_id AS id, name FROM agents.deployments WHERE workspace_id = $1 AND closed_at IS NULL',
  evaluator: 'SELECT id, name FROM evaluators WHERE workspace_id = $1',
};

/** SQL: type, id and name of all resources of the workspace `$1`. */
const allResourcesSql = resourceTypes
  .map((type) => `SELECT '${type}' AS type, id, name FROM (${resourcesSql[type]}) AS ${type}s`)
  .join(' UNION ALL ');

export interface Tagging {
  readonly id: string;
  readonly tag_value_id: string;
  readonly resource_type: ResourceType;
  readonly resource_id: string;
  readonly created_at: string;
}

interface NamedTagging extends Tagging {
  readonly resource_name: string;
}

interface ResourceName {
  readonly type: ResourceType;
  readonly id: string;
}

/**
 * Assigns a tag value to a resource; does nothing if the resource already has the value.
 *
 * @throws NOT_FOUND; LIMIT_REACHED.
 */
export async function createTagging(
  database: Database,
  workspaceId: string,
  valueId: string,
  { type, id }: ResourceName,
): Promise<Tagging> {
  return database.transaction(async (tx) => {
    const [resource] = await tx.query(`SELECT FROM (${resourcesSql[type]}) AS resources WHERE id = $2`, [
      workspaceId,
      id,
    ]);
    if (!resource) throw runlakeError('NOT_FOUND', { what: `The ${type} ${id}` });
    await addTaggings(tx, workspaceId, { type, id }, [valueId]);
    const [made] = await tx.query<Tagging>(
      `SELECT id, tag_value_id, resource_type, resource_id, created_at FROM taggings
       WHERE tag_value_id = $1 AND resource_type = $2 AND resource_id = $3`,
      [valueId, type, id],
    );
    return made!;
  });
}

/**
 * Assigns tag values to a resource of the workspace, in the transaction that creates or reads the resource.
 *
 * @throws NOT_FOUND for an unknown value; LIMIT_REACHED.
 */
export async function addTaggings(
  tx: Sql,
  workspaceId: string,
  { type, id }: ResourceName,
  valueIds: readonly string[],
): Promise<void> {
  // Transactions lock values in the same order, so that they do not wait for each other.
  for (const valueId of toUniqueIds(valueIds).sort()) {
    const [value] = await tx.query(
      `SELECT FROM tag_values WHERE id = $2 AND tag_key_id IN (SELECT id FROM tag_keys WHERE workspace_id = $1)
       FOR NO KEY UPDATE`,
      [workspaceId, valueId],
    );
    if (!value) throw runlakeError('NOT_FOUND', { what: `Tag value ${valueId}` });
    await tx.execute(
      `INSERT INTO taggings (id, tag_value_id, resource_type, resource_id) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
      [randomUUID(), valueId, type, id],
    );
    await enforceLimit(tx, 'tagValue', valueId, taggingLimit);
  }
}

export async function hasTaggings(tx: Sql, resourceId: string, valueIds: readonly string[]): Promise<boolean> {
  const [found] = await tx.query(
    'SELECT WHERE $2::uuid[] <@ array(SELECT tag_value_id FROM taggings WHERE resource_id = $1)',
    [resourceId, valueIds],
  );
  return found !== undefined;
}

/** Deletes a tagging. @throws NOT_FOUND */
export async function deleteTagging(database: Database, workspaceId: string, id: string): Promise<void> {
  const deleted = await database.execute(
    `DELETE FROM taggings WHERE id = $2 AND tag_value_id IN (
       SELECT v.id FROM tag_values AS v JOIN tag_keys AS k ON k.id = v.tag_key_id WHERE k.workspace_id = $1)`,
    [workspaceId, id],
  );
  if (deleted === 0) throw runlakeError('NOT_FOUND', { what: 'Tagging' });
}

interface TaggingConditions {
  readonly valueId?: string | undefined;
  readonly resourceIds?: readonly string[] | undefined;
}

/**
 * Lists the taggings of a workspace that meet every given condition, ordered by the name of the resource.
 *
 * @throws ANSWER_TOO_LARGE
 */
export function listTaggings(
  database: Sql,
  workspaceId: string,
  { valueId, resourceIds }: TaggingConditions,
): Promise<NamedTagging[]> {
  return queryPageWithinLimit<NamedTagging>(
    database,
    `SELECT t.id, t.tag_value_id, t.resource_type, t.resource_id, t.created_at, r.name AS resource_name
     FROM taggings AS t JOIN tag_values AS v ON v.id = t.tag_value_id JOIN tag_keys AS k ON k.id = v.tag_key_id
     JOIN (${allResourcesSql}) AS r ON r.type = t.resource_type AND r.id = t.resource_id
     WHERE k.workspace_id = $1 AND ($2::uuid IS NULL OR v.id = $2) AND ($3::uuid[] IS NULL OR t.resource_id = ANY ($3))
     ORDER BY resource_name, t.id`,
    [workspaceId, valueId ?? null, resourceIds ?? null],
    internals.maxPageBytes,
  );
}

/**
 * Finds the resources that have all of some values, for the ids of a list; only those of `among` if it is given.
 *
 * @returns `among` if `valueIds` is absent or empty.
 */
export async function findTaggedIds(
  database: Sql,
  workspaceId: string,
  valueIds: readonly string[] | undefined,
  among: readonly string[] | undefined,
): Promise<readonly string[] | undefined> {
  if (valueIds === undefined || valueIds.length === 0) return among;
  const unique = [...new Set(valueIds.map((id) => id.toLowerCase()))];
  const rows = await database.query<{ id: string }>(
    `SELECT t.resource_id AS id
     FROM taggings AS t JOIN tag_values AS v ON v.id = t.tag_value_id JOIN tag_keys AS k ON k.id = v.tag_key_id
     WHERE k.workspace_id = $1 AND v.id = ANY ($2::uuid[]) AND ($3::uuid[] IS NULL OR t.resource_id = ANY ($3))
     GROUP BY t.resource_id HAVING count(DISTINCT v.id) = cardinality($2::uuid[])`,
    [workspaceId, unique, among ?? null],
  );
  return rows.map(({ id }) => id);
}

export interface TagKeyWithValues<V> extends TagKey {
  readonly values: V[];
}

/** Lists all tag keys of a workspace, with all their values or with those of the given ids. @throws ANSWER_TOO_LARGE */
export async function listTags(
  database: Sql,
  workspaceId: string,
  valueIds?: readonly string[],
): Promise<TagKeyWithValues<TagValue>[]> {
  const [keys, values] = await Promise.all([
    listTagKeys(database, workspaceId),
    listTagValues(database, workspaceId, { ids: valueIds }),
  ]);
  const byKey = groupBy(values, ({ tag_key_id }) => tag_key_id);
  return keys.map((key) => ({ ...key, values: byKey.get(key.id) ?? [] }));
}

type TaggedValue = TagValue & { readonly taggings: Tagging[] };

/** Approximate bytes of a tag of a resource in a response, besides its descriptions. */
const tagBytes = 1_000;

/**
 * Lists the tags of resources, by id of the resource: the keys and values that the resource has, with its taggings.
 *
 * @throws ANSWER_TOO_LARGE: the response repeats a tag for each resource.
 */
export async function listResourceTags(
  database: Sql,
  workspaceId: string,
  resources: readonly ResourceName[],
): Promise<Map<string, TagKeyWithValues<TaggedValue>[]>> {
  const taggings = await listTaggings(database, workspaceId, { resourceIds: resources.map(({ id }) => id) });
  const usedValueIds = [...new Set(taggings.map(({ tag_value_id }) => tag_value_id))];
  const used = await listTags(database, workspaceId, usedValueIds);
  const tags = used.flatMap(({ values, ...key }) => values.map((value) => ({ key, value })));
  const ranks = new Map(tags.map(({ value }, rank) => [value.id, rank]));
  const taggingsByResource = groupBy(taggings, (each) => `${each.resource_type} ${each.resource_id}`);
  // Not all tags are visited for each resource, because there may be very many of both.
  const found = [...new Map(resources.map((each) => [each.id, each])).values()].map(({ type, id }) => {
    const own = groupBy(taggingsByResource.get(`${type} ${id}`) ?? [], ({ tag_value_id }) => tag_value_id);
    const ownTags = [...own].flatMap(([valueId, ofValue]) => {
      const rank = ranks.get(valueId);
      return rank === undefined ? [] : [{ rank, ...tags[rank]!, taggings: ofValue.map(removeName) }];
    });
    return { id, tags: ownTags.sort((one, other) => one.rank - other.rank) };
  });
  const measure = (description: string | null) => Buffer.byteLength(description ?? '');
  const sizes = found.flatMap((each) =>
    each.tags.map(({ key, value }) => tagBytes + measure(key.description) + measure(value.description)),
  );
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  requireWithin(sizes.length, bytes, internals.maxPageBytes);
  reserveMemory(bytes);
  return new Map(found.map(({ id, tags: ownTags }) => [id, groupTags(ownTags)]));
}

const removeName = ({ resource_name: _name, ...tagging }: NamedTagging): Tagging => tagging;

/** Groups tags by their keys, in their order. */
function groupTags(
  tags: readonly { readonly key: TagKey; readonly value: TagValue; readonly taggings: Tagging[] }[],
): TagKeyWithValues<TaggedValue>[] {
  return [...groupBy(tags, ({ key }) => key.id).values()].map((ofKey) => ({
    ...ofKey[0]!.key,
    values: ofKey.map(({ value, taggings }) => ({ ...value, taggings })),
  }));
}
