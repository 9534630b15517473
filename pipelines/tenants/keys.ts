import { randomUUID } from 'node:crypto';
import { internals } from '../../infra/config/internals.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import type { Authenticator } from './authenticate.ts';
import { type Caller, requirePermission } from './caller.ts';
import { enforceLimit } from './enforce-limit.ts';
import { generateKey, hashKey, toShortKey } from './key-format.ts';
import { requireMemberQuota, type TenantLimits } from './members.ts';
import { computeEffectivePermissions, type Permission } from './permissions.ts';

/** An API key as the API returns it, without its secret. Times are ISO 8601 with microseconds. */
export interface KeyRecord {
  readonly id: string;
  readonly short_key: string;
  readonly description: string;
  readonly read_only: boolean;
  readonly created_at: string;
  readonly last_used_at: string | null;
  readonly expires_at: string | null;
  /** Null if the key is valid for every workspace of the organisation. */
  readonly workspace_names: string[] | null;
  readonly default_workspace_name: string | null;
  readonly permissions: string[];
  readonly user_id: string;
  readonly user_email: string;
}

/** Select list of a {@link KeyRecord} from {@link keyTables}. */
const keyColumns = `k.id, k.short_key, k.description, k.read_only, k.created_at, k.last_used_at, k.expires_at,
  CASE WHEN k.workspace_ids IS NOT NULL THEN
    ARRAY(SELECT w.display_name FROM workspaces w WHERE w.id = ANY (k.workspace_ids) ORDER BY w.display_name, w.id)
  END AS workspace_names,
  d.display_name AS default_workspace_name, k.permissions, k.user_id, u.email AS user_email`;

const keyTables = `api_keys k JOIN users u ON u.id = k.user_id
  LEFT JOIN workspaces d ON d.id = k.default_workspace_id`;

export interface NewKey {
  readonly description: string;
  readonly readOnly: boolean;
  /** Expiry time in ISO 8601. Default: the expiry of the caller's key. */
  readonly expiresAt?: string | null | undefined;
  /**
   * Ids of the workspaces, at least one. Default: the caller's workspace, or the whole organisation if
   * `organizationWide` is set.
   */
  readonly workspaceIds?: readonly string[] | null | undefined;
  readonly organizationWide: boolean;
  readonly defaultWorkspaceId?: string | null | undefined;
  /** Permissions of the key. Default: the permissions of the caller. */
  readonly permissions?: readonly Permission[] | null | undefined;
  /** Email of the key's user. Default: the caller. For an unknown email, a new user is created in the organisation. */
  readonly userEmail?: string | null | undefined;
}

/** SQL condition on `api_keys AS k`. The limit counts the keys that the lists contain, so that it bounds the lists. */
const isValidSql = 'k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())';

const countKeysSql = `SELECT count(*) AS count FROM api_keys AS k WHERE k.organization_id = $1 AND ${isValidSql}`;

/**
 * Creates an API key and returns it; it is not shown again. The key never exceeds the caller's workspaces, permissions
 * and expiry.
 *
 * @throws FORBIDDEN, WORKSPACE_FORBIDDEN, BAD_REQUEST, LIMIT_REACHED, API_KEY_INVALID, SESSION_INVALID.
 */
export async function createKey(
  database: Database,
  caller: Caller,
  newKey: NewKey,
  limits: TenantLimits,
): Promise<KeyRecord & { readonly key: string }> {
  const workspaceIds = resolveWorkspaces(caller, newKey);
  for (const permission of newKey.permissions ?? []) requirePermission(caller, permission);
  const expiresAt = resolveExpiry(caller, newKey.expiresAt);
  const defaultWorkspaceId = newKey.defaultWorkspaceId?.toLowerCase() ?? null;
  const reachableWorkspaceIds = workspaceIds ?? [...caller.readableWorkspaceIds];
  if (defaultWorkspaceId !== null && !reachableWorkspaceIds.includes(defaultWorkspaceId)) {
    throw runlakeError('WORKSPACE_FORBIDDEN', { workspace: defaultWorkspaceId });
  }
  const key = generateKey();
  return database.transaction(async (tx) => {
    const id = randomUUID();
    await tx.execute(
      `INSERT INTO api_keys (id, organization_id, workspace_ids, default_workspace_id, user_id, hash, short_key, description,
         permissions, read_only, expires_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
      [
        id,
        caller.organizationId,
        workspaceIds,
        defaultWorkspaceId,
        await findOrCreateUser(tx, caller, newKey.userEmail ?? undefined, limits),
        hashKey(key),
        toShortKey(key),
        newKey.description,
        newKey.permissions ?? caller.storedPermissions,
        newKey.readOnly || caller.readOnly,
        expiresAt,
      ],
    );
    await enforceLimit(tx, 'organization', caller.organizationId, {
      max: limits.maxApiKeys,
      countSql: countKeysSql,
      what: 'API keys',
      hint: 'Revoke those that are not needed',
    });
    await requireValidKey(tx, caller);
    const [record] = await tx.query<KeyRecord>(`SELECT ${keyColumns} FROM ${keyTables} WHERE k.id = $1`, [id]);
    return { ...record!, key };
  });
}

/**
 * Checks that the key of the caller is not revoked. Another process may have done that some seconds ago, for example
 * because its user has a lower role now; a key that is created after that would keep the former permissions. A revocation
 * that follows waits for the transaction.
 *
 * @throws API_KEY_INVALID, SESSION_INVALID
 */
async function requireValidKey(tx: Sql, { keyId, session }: Caller): Promise<void> {
  // The operator on the command line has no key.
  if (keyId === nilUuid) return;
  const valid = await tx.query('SELECT FROM api_keys WHERE id = $1 AND revoked_at IS NULL FOR SHARE', [keyId]);
  if (valid.length === 0) throw runlakeError(session === undefined ? 'API_KEY_INVALID' : 'SESSION_INVALID');
}

/** Returns the workspaces that the new key is valid for; null means the whole organisation. */
function resolveWorkspaces(caller: Caller, newKey: NewKey): string[] | null {
  const named = newKey.workspaceIds?.map((id) => id.toLowerCase());
  for (const id of named ?? []) {
    if (!caller.readableWorkspaceIds.has(id)) throw runlakeError('WORKSPACE_FORBIDDEN', { workspace: id });
  }
  if (named) return [...new Set(named)];
  if (!newKey.organizationWide) {
    if (caller.workspaceId === undefined) throw runlakeError('WORKSPACE_REQUIRED');
    return [caller.workspaceId];
  }
  // Keys restricted to some workspaces never have this permission.
  requirePermission(caller, 'organization:manage');
  return null;
}

function resolveExpiry(caller: Caller, newKey: string | null | undefined): string | null {
  if (newKey === null || newKey === undefined) return caller.expiresAt?.toISOString() ?? null;
  const at = new Date(/(?:Z|[+-]\d\d:?\d\d)$/i.test(newKey) ? newKey : `${newKey}Z`);
  if (at.getTime() <= Date.now()) throw runlakeError('BAD_REQUEST', { reason: 'expires_at is in the past.' });
  if (caller.expiresAt && at > caller.expiresAt) {
    throw runlakeError('BAD_REQUEST', {
      reason: 'expires_at is later than the expiry of the key that creates this one.',
    });
  }
  return at.toISOString();
}

/**
 * Returns the id of the user with this email; creates the user if no such user exists. Only a caller with a certain
 * permission may create keys for another user.
 */
async function findOrCreateUser(
  tx: Sql,
  caller: Caller,
  email: string | undefined,
  limits: TenantLimits,
): Promise<string> {
  if (email === undefined || email.toLowerCase() === caller.userEmail.toLowerCase()) return caller.userId;
  requirePermission(caller, 'organization:manage');
  const [made] = await tx.query<{ id: string }>(
    `INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)
     ON CONFLICT (organization_id, lower(email)) WHERE removed_at IS NULL DO NOTHING RETURNING id`,
    [randomUUID(), caller.organizationId, email],
  );
  if (made) {
    await requireMemberQuota(tx, caller, limits);
    return made.id;
  }
  const [known] = await tx.query<{ id: string }>(
    'SELECT id FROM users WHERE organization_id = $1 AND lower(email) = lower($2) AND removed_at IS NULL',
    [caller.organizationId, email],
  );
  // The user was removed between the two statements.
  if (known === undefined)
    throw runlakeError('CONFLICT', { reason: 'The user was just removed. Send the request again.' });
  return known.id;
}

/**
 * Lists keys that are neither revoked nor expired, newest first: the keys of `workspaceId` or, if it is null, all keys
 * whose workspaces the caller has access to. Keys of the whole organisation are not listed under a workspace.
 *
 * @throws ANSWER_TOO_LARGE: a key may have many workspaces.
 */
export function listKeys(database: Database, caller: Caller, workspaceId: string | null): Promise<KeyRecord[]> {
  return queryPageWithinLimit<KeyRecord>(
    database,
    `SELECT ${keyColumns} FROM ${keyTables}
     WHERE k.organization_id = $1 AND ${isValidSql}
       AND ($2 OR k.workspace_ids <@ $3::uuid[])
       AND ($4::uuid IS NULL OR k.workspace_ids @> ARRAY[$4::uuid])
     ORDER BY k.created_at DESC, k.id`,
    [caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], workspaceId],
    internals.maxPageBytes,
  );
}

/**
 * SQL condition for a key that the caller may revoke. Parameters: key, organisation, whether the caller has access to
 * the whole organisation, workspaces of the caller, workspace.
 */
const revocableCondition = `id = $1 AND organization_id = $2 AND revoked_at IS NULL
  AND ($3 OR workspace_ids <@ $4::uuid[])
  AND ($5::uuid IS NULL OR workspace_ids @> ARRAY[$5::uuid])`;

/**
 * Revokes a key; the revocation takes effect at once in this process. The row of the key stays, because usage shows its
 * name. `workspaceId` has the same meaning as in {@link listKeys}.
 *
 * A caller cannot revoke a key that has a permission that the caller lacks. Otherwise a key created to rotate other
 * keys could lock out the owner.
 *
 * @throws FORBIDDEN with the permission that the caller lacks; NOT_FOUND if the caller has no access to a key with this
 *   id, or if the key is already revoked.
 */
export async function revokeKey(
  { database, authenticator }: { database: Database; authenticator: Authenticator },
  caller: Caller,
  keyId: string,
  workspaceId: string | null,
): Promise<KeyRecord> {
  const key = [keyId, caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], workspaceId];
  // Permissions of a key never change, so this check still holds for the UPDATE below.
  const [held] = await database.query<{ permissions: string[]; read_only: boolean; organization_wide: boolean }>(
    `SELECT permissions, read_only, workspace_ids IS NULL AS organization_wide FROM api_keys WHERE ${revocableCondition}`,
    key,
  );
  if (!held) throw runlakeError('NOT_FOUND', { what: 'API key' });
  for (const permission of computeEffectivePermissions(held.permissions, held.read_only, held.organization_wide)) {
    requirePermission(caller, permission);
  }
  const [revoked] = await database.query<KeyRecord & { hash: Buffer }>(
    `WITH revoked AS (
       UPDATE api_keys SET revoked_at = now()
       WHERE ${revocableCondition}
       RETURNING id, hash
     )
     SELECT ${keyColumns}, revoked.hash FROM ${keyTables} JOIN revoked ON revoked.id = k.id`,
    key,
  );
  if (!revoked) throw runlakeError('NOT_FOUND', { what: 'API key' });
  const { hash, ...record } = revoked;
  authenticator.forgetKey(hash);
  return record;
}
