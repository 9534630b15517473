/** Tags of resources: the tag keys of a workspace, and their values. */
import { randomUUID } from 'node:crypto';
import { internals } from '../../infra/config/internals.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';

const keyLimit = {
  max: 1_000,
  countSql: 'SELECT count(*) AS count FROM tag_keys WHERE workspace_id = $1',
  what: 'tag keys',
};
const valueLimit = {
  max: 1_000,
  countSql: 'SELECT count(*) AS count FROM tag_values WHERE tag_key_id = $1',
  what: 'values of a tag key',
};

/** Times are ISO 8601 with microseconds. */
interface Named {
  readonly id: string;
  readonly description: string | null;
  readonly created_at: string;
  readonly updated_at: string;
}

export interface TagKey extends Named {
  readonly key: string;
}

export interface TagValue extends Named {
  readonly value: string;
  readonly tag_key_id: string;
}

/** Absent fields stay unchanged. A null name also leaves the name unchanged. */
interface TagChange {
  readonly name?: string | null | undefined;
  readonly description?: string | null | undefined;
}

const keyColumns = 'id, key, description, created_at, updated_at';
const valueColumns = 'id, tag_key_id, value, description, created_at, updated_at';

/** Lists the tag keys of a workspace in alphabetical order. @throws ANSWER_TOO_LARGE */
export function listTagKeys(database: Sql, workspaceId: string): Promise<TagKey[]> {
  const sql = `SELECT ${keyColumns} FROM tag_keys WHERE workspace_id = $1 ORDER BY key, id`;
  return queryPageWithinLimit<TagKey>(database, sql, [workspaceId], internals.maxPageBytes);
}

/** Reads a tag key. @throws NOT_FOUND */
export async function readTagKey(database: Sql, workspaceId: string, id: string): Promise<TagKey> {
  const sql = `SELECT ${keyColumns} FROM tag_keys WHERE workspace_id = $1 AND id = $2`;
  const [found] = await database.query<TagKey>(sql, [workspaceId, id]);
  return found ?? fail('Tag key');
}

/** Creates a tag key. @throws CONFLICT if the workspace already has this key; LIMIT_REACHED. */
export async function createTagKey(
  database: Database,
  workspaceId: string,
  { key, description }: { readonly key: string; readonly description?: string | null | undefined },
): Promise<TagKey> {
  return refuseDuplicates(
    database.transaction(async (tx) => {
      const [made] = await tx.query<TagKey>(
        `INSERT INTO tag_keys (id, workspace_id, key, description) VALUES ($1, $2, $3, $4) RETURNING ${keyColumns}`,
        [randomUUID(), workspaceId, key, description ?? null],
      );
      await enforceLimit(tx, 'workspace', workspaceId, keyLimit);
      return made!;
    }),
    'A tag key with this name',
  );
}

/** Changes a tag key. @throws NOT_FOUND; CONFLICT if the workspace has another key with this name. */
export async function updateTagKey(
  database: Database,
  workspaceId: string,
  id: string,
  { name, description }: TagChange,
): Promise<TagKey> {
  const [changed] = await refuseDuplicates(
    database.query<TagKey>(
      `UPDATE tag_keys SET key = coalesce($3, key), description = CASE WHEN $4 THEN $5 ELSE description END,
         updated_at = now() WHERE workspace_id = $1 AND id = $2 RETURNING ${keyColumns}`,
      [workspaceId, id, name ?? null, description !== undefined, description ?? null],
    ),
    'A tag key with this name',
  );
  return changed ?? fail('Tag key');
}

/** Deletes a key with its values, and removes them from resources. @throws NOT_FOUND */
export async function deleteTagKey(database: Database, workspaceId: string, id: string): Promise<void> {
  const deleted = await database.execute('DELETE FROM tag_keys WHERE workspace_id = $1 AND id = $2', [workspaceId, id]);
  if (deleted === 0) fail('Tag key');
}

/**
 * Lists the values of a workspace in alphabetical order: those of one key, or those with the given ids.
 *
 * @throws ANSWER_TOO_LARGE
 */
export function listTagValues(
  database: Sql,
  workspaceId: string,
  { keyId, ids }: { readonly keyId?: string; readonly ids?: readonly string[] | undefined },
): Promise<TagValue[]> {
  return queryPageWithinLimit<TagValue>(
    database,
    `SELECT ${valueColumns} FROM tag_values
     WHERE tag_key_id IN (SELECT id FROM tag_keys WHERE workspace_id = $1) AND ($2::uuid IS NULL OR tag_key_id = $2)
       AND ($3::uuid[] IS NULL OR id = ANY ($3))
     ORDER BY value, id`,
    [workspaceId, keyId ?? null, ids ?? null],
    internals.maxPageBytes,
  );
}

interface ValuePath {
  readonly keyId: string;
  readonly valueId: string;
}

const valuePathCondition = 'id = $3 AND tag_key_id = (SELECT id FROM tag_keys WHERE workspace_id = $1 AND id = $2)';

/** Reads a tag value. @throws NOT_FOUND */
export async function readTagValue(
  database: Sql,
  workspaceId: string,
  { keyId, valueId }: ValuePath,
): Promise<TagValue> {
  const sql = `SELECT ${valueColumns} FROM tag_values WHERE ${valuePathCondition}`;
  const [found] = await database.query<TagValue>(sql, [workspaceId, keyId, valueId]);
  return found ?? fail('Tag value');
}

/**
 * Creates a tag value.
 *
 * @throws NOT_FOUND for an unknown key; CONFLICT if the key already has this value; LIMIT_REACHED.
 */
export async function createTagValue(
  database: Database,
  workspaceId: string,
  keyId: string,
  { value, description }: { readonly value: string; readonly description?: string | null | undefined },
): Promise<TagValue> {
  return refuseDuplicates(
    database.transaction(async (tx) => {
      const [key] = await tx.query('SELECT FROM tag_keys WHERE workspace_id = $1 AND id = $2 FOR NO KEY UPDATE', [
        workspaceId,
        keyId,
      ]);
      if (!key) fail('Tag key');
      const [made] = await tx.query<TagValue>(
        `INSERT INTO tag_values (id, tag_key_id, value, description) VALUES ($1, $2, $3, $4) RETURNING ${valueColumns}`,
        [randomUUID(), keyId, value, description ?? null],
      );
      await enforceLimit(tx, 'tagKey', keyId, valueLimit);
      return made!;
    }),
    'This value of the tag key',
  );
}

/** Changes a tag value. @throws NOT_FOUND; CONFLICT if the key has another value with this name. */
export async function updateTagValue(
  database: Database,
  workspaceId: string,
  { keyId, valueId }: ValuePath,
  { name, description }: TagChange,
): Promise<TagValue> {
  const [changed] = await refuseDuplicates(
    database.query<TagValue>(
      `UPDATE tag_values SET value = coalesce($4, value), description = CASE WHEN $5 THEN $6 ELSE description END,
         updated_at = now() WHERE ${valuePathCondition} RETURNING ${valueColumns}`,
      [workspaceId, keyId, valueId, name ?? null, description !== undefined, description ?? null],
    ),
    'This value of the tag key',
  );
  return changed ?? fail('Tag value');
}

/** Deletes a value, and removes it from resources. @throws NOT_FOUND */
export async function deleteTagValue(
  database: Database,
  workspaceId: string,
  { keyId, valueId }: ValuePath,
): Promise<void> {
  const deleted = await database.execute(`DELETE FROM tag_values WHERE ${valuePathCondition}`, [
    workspaceId,
    keyId,
    valueId,
  ]);
  if (deleted === 0) fail('Tag value');
}

function fail(what: string): never {
  throw runlakeError('NOT_FOUND', { what });
}

async function refuseDuplicates<T>(work: Promise<T>, what: string): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (getViolatedConstraint(error) === undefined) throw error;
    throw runlakeError('CONFLICT', { reason: `${what} already exists.` }, { cause: error });
  }
}
