import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { requirePermission } from './caller.ts';
import { enforceLimit } from './enforce-limit.ts';
import { generateKey, hashKey, shortKey } from './key-format.ts';
import { type KeyRecord, keyColumns, keyTables } from './key-record.ts';
import type { Permission } from './permissions.ts';
import { requireMemberQuota, type TenantLimits } from './require-member-quota.ts';

export interface NewKey {
  readonly description: string;
  readonly readOnly: boolean;
  /** ISO 8601. Default: the expiry of the caller's key. */
  readonly expiresAt?: string | null | undefined;
  /** Default: the caller's workspace, or the whole organisation if `organizationWide` is set. */
  readonly workspaceIds?: readonly string[] | null | undefined;
  readonly organizationWide: boolean;
  readonly defaultWorkspaceId?: string | null | undefined;
  /** Default: the permissions of the caller. */
  readonly permissions?: readonly Permission[] | null | undefined;
  /** Default: the caller. An unknown email becomes a new user of the organisation. */
  readonly userEmail?: string | null | undefined;
}

const countKeys = `SELECT count(*) AS there FROM api_keys
  WHERE organization_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())`;

/**
 * Creates an API key and returns it; it is not shown again. The key never exceeds the caller's workspaces, permissions
 * and expiry.
 *
 * @throws FORBIDDEN, WORKSPACE_FORBIDDEN, BAD_REQUEST, LIMIT_REACHED.
 */
export async function createKey(
  database: Database,
  caller: Caller,
  wanted: NewKey,
  limits: TenantLimits,
): Promise<KeyRecord & { readonly key: string }> {
  const workspaceIds = allowedWorkspaces(caller, wanted);
  for (const permission of wanted.permissions ?? []) requirePermission(caller, permission);
  const expiresAt = allowedExpiry(caller, wanted.expiresAt);
  const defaultWorkspaceId = wanted.defaultWorkspaceId?.toLowerCase() ?? null;
  const reach = workspaceIds ?? [...caller.readableWorkspaceIds];
  if (defaultWorkspaceId !== null && !reach.includes(defaultWorkspaceId)) {
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
        await findOrCreateUser(tx, caller, wanted.userEmail ?? undefined, limits),
        hashKey(key),
        shortKey(key),
        wanted.description,
        wanted.permissions ?? caller.storedPermissions,
        wanted.readOnly || caller.readOnly,
        expiresAt,
      ],
    );
    await enforceLimit(tx, caller, { most: limits.maxApiKeys, count: countKeys }, () =>
      runlakeError('LIMIT_REACHED', {
        limit: limits.maxApiKeys,
        what: 'API keys',
        instead: 'Revoke those that are not needed',
      }),
    );
    const [record] = await tx.query<KeyRecord>(`SELECT ${keyColumns} FROM ${keyTables} WHERE k.id = $1`, [id]);
    return { ...record!, key };
  });
}

/** null: the whole organisation. */
function allowedWorkspaces(caller: Caller, wanted: NewKey): string[] | null {
  const named = wanted.workspaceIds?.map((id) => id.toLowerCase()) ?? [];
  for (const id of named) {
    if (!caller.readableWorkspaceIds.has(id)) throw runlakeError('WORKSPACE_FORBIDDEN', { workspace: id });
  }
  if (named.length > 0) return [...new Set(named)];
  if (!wanted.organizationWide) {
    if (caller.workspaceId === undefined) throw runlakeError('WORKSPACE_REQUIRED');
    return [caller.workspaceId];
  }
  // Keys restricted to some workspaces never have this permission.
  requirePermission(caller, 'organization:manage');
  return null;
}

function allowedExpiry(caller: Caller, wanted: string | null | undefined): string | null {
  if (wanted === null || wanted === undefined) return caller.expiresAt?.toISOString() ?? null;
  const at = new Date(/(?:Z|[+-]\d\d:?\d\d)$/i.test(wanted) ? wanted : `${wanted}Z`);
  if (at.getTime() <= Date.now()) throw runlakeError('BAD_REQUEST', { reason: 'expires_at is in the past.' });
  if (caller.expiresAt && at > caller.expiresAt) {
    throw runlakeError('BAD_REQUEST', {
      reason: 'expires_at is later than the expiry of the key that creates this one.',
    });
  }
  return at.toISOString();
}

/** The user with this email, created if there is none. Creating keys for another user requires a permission. */
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
