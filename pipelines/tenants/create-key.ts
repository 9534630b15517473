import { randomUUID } from 'node:crypto';
import { fault } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { requirePermission } from './caller.ts';
import { generateKey, hashKey, shortKey } from './key-format.ts';
import { type KeyRecord, keyColumns, keyTables } from './key-record.ts';
import type { Permission } from './permissions.ts';
import { requireRoomForMember, type TenantLimits } from './require-room-for-member.ts';
import { stayWithin } from './stay-within.ts';

export interface NewKey {
  readonly description: string;
  readonly readOnly: boolean;
  /** ISO 8601. Absent: as long as the caller's key. */
  readonly expiresAt?: string | null | undefined;
  /** Absent: the caller's workspace, or all of the organisation where `organizationWide` says so. */
  readonly workspaceIds?: readonly string[] | null | undefined;
  readonly organizationWide: boolean;
  readonly defaultWorkspaceId?: string | null | undefined;
  /** Absent: what the caller has. */
  readonly permissions?: readonly Permission[] | null | undefined;
  /** Absent: the caller. Somebody new becomes a user of the organisation. */
  readonly userEmail?: string | null | undefined;
}

const keysThere = `SELECT count(*) AS there FROM api_keys
  WHERE organization_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())`;

/**
 * Makes an API key and returns it, the only time that it can be seen. It never gets more than the caller has: workspaces,
 * permissions, time.
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
    throw fault('WORKSPACE_FORBIDDEN', { workspace: defaultWorkspaceId });
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
        await userOf(tx, caller, wanted.userEmail ?? undefined, limits),
        hashKey(key),
        shortKey(key),
        wanted.description,
        wanted.permissions ?? caller.storedPermissions,
        wanted.readOnly || caller.readOnly,
        expiresAt,
      ],
    );
    await stayWithin(tx, caller, { most: limits.maxApiKeys, count: keysThere }, () =>
      fault('LIMIT_REACHED', {
        limit: limits.maxApiKeys,
        what: 'API keys',
        setting: 'RUNLAKE_MAX_API_KEYS',
        instead: 'Revoke those that are not needed',
      }),
    );
    const [record] = await tx.query<KeyRecord>(`SELECT ${keyColumns} FROM ${keyTables} WHERE k.id = $1`, [id]);
    return { ...record!, key };
  });
}

/** null: all of the organisation. */
function allowedWorkspaces(caller: Caller, wanted: NewKey): string[] | null {
  const named = wanted.workspaceIds?.map((id) => id.toLowerCase()) ?? [];
  for (const id of named) {
    if (!caller.readableWorkspaceIds.has(id)) throw fault('WORKSPACE_FORBIDDEN', { workspace: id });
  }
  if (named.length > 0) return [...new Set(named)];
  if (!wanted.organizationWide) {
    if (caller.workspaceId === undefined) throw fault('WORKSPACE_REQUIRED');
    return [caller.workspaceId];
  }
  // Of those who reach only some workspaces nobody has this permission.
  requirePermission(caller, 'organization:manage');
  return null;
}

function allowedExpiry(caller: Caller, wanted: string | null | undefined): string | null {
  if (wanted === null || wanted === undefined) return caller.expiresAt?.toISOString() ?? null;
  const at = new Date(/(?:Z|[+-]\d\d:?\d\d)$/i.test(wanted) ? wanted : `${wanted}Z`);
  if (at.getTime() <= Date.now()) throw fault('BAD_REQUEST', { reason: 'expires_at lies in the past.' });
  if (caller.expiresAt && at > caller.expiresAt) {
    throw fault('BAD_REQUEST', { reason: 'expires_at lies after the end of the key that makes this one.' });
  }
  return at.toISOString();
}

/** The user with `email`, made where there is none. Speaking for somebody else is a right of its own. */
async function userOf(tx: Sql, caller: Caller, email: string | undefined, limits: TenantLimits): Promise<string> {
  if (email === undefined || email.toLowerCase() === caller.userEmail.toLowerCase()) return caller.userId;
  requirePermission(caller, 'organization:manage');
  const [made] = await tx.query<{ id: string }>(
    `INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)
     ON CONFLICT (organization_id, lower(email)) WHERE removed_at IS NULL DO NOTHING RETURNING id`,
    [randomUUID(), caller.organizationId, email],
  );
  if (made) {
    await requireRoomForMember(tx, caller, limits);
    return made.id;
  }
  const [known] = await tx.query<{ id: string }>(
    'SELECT id FROM users WHERE organization_id = $1 AND lower(email) = lower($2) AND removed_at IS NULL',
    [caller.organizationId, email],
  );
  // Removed between the two statements.
  if (known === undefined)
    throw fault('CONFLICT', { reason: 'The user was removed just now. Send the request again.' });
  return known.id;
}
