import { randomUUID } from 'node:crypto';
import { internals } from '../../infra/config/internals.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import { type Caller, requirePermission } from './caller.ts';
import { enforceLimit } from './enforce-limit.ts';
import { computeEffectivePermissions, EVERYTHING } from './permissions.ts';

export interface MemberRecord {
  readonly id: string;
  readonly organization_id: string;
  readonly created_at: string;
  readonly email: string;
  readonly full_name: string | null;
}

/** Lists the users of the caller's organisation, oldest first. @throws ANSWER_TOO_LARGE */
export function listMembers(database: Database, caller: Caller): Promise<MemberRecord[]> {
  return queryPageWithinLimit<MemberRecord>(
    database,
    `SELECT id, organization_id, created_at, email, full_name FROM users
     WHERE organization_id = $1 AND removed_at IS NULL ORDER BY created_at, id`,
    [caller.organizationId],
    internals.maxPageBytes,
  );
}

export type TenantLimits = Pick<Config, 'maxApiKeys' | 'maxMembers'>;

/** Rolls back the transaction if the inserted user puts the organisation above its limit. @throws LIMIT_REACHED */
export function requireMemberQuota(
  tx: Sql,
  { organizationId }: { readonly organizationId: string },
  { maxMembers }: Pick<TenantLimits, 'maxMembers'>,
): Promise<void> {
  const countSql = 'SELECT count(*) AS count FROM users WHERE organization_id = $1 AND removed_at IS NULL';
  const limit = { max: maxMembers, countSql, what: 'users', hint: 'Create keys for existing users' };
  return enforceLimit(tx, 'organization', organizationId, limit);
}

/**
 * Creates a user in the organisation of the caller.
 *
 * @throws CONFLICT if the organisation has a user with that email, ignoring case; LIMIT_REACHED.
 */
export async function createMember(
  database: Database,
  caller: Caller,
  { email, fullName }: { email: string; fullName?: string | null | undefined },
  limits: Pick<TenantLimits, 'maxMembers'>,
): Promise<MemberRecord> {
  return database.transaction(async (tx) => {
    const [member] = await tx.query<MemberRecord>(
      `INSERT INTO users (id, organization_id, email, full_name) VALUES ($1, $2, $3, $4)
     ON CONFLICT (organization_id, lower(email)) WHERE removed_at IS NULL DO NOTHING
     RETURNING id, organization_id, created_at, email, full_name`,
      [randomUUID(), caller.organizationId, email, fullName ?? null],
    );
    if (!member) throw runlakeError('CONFLICT', { reason: 'A member with this email already exists.' });
    await requireMemberQuota(tx, caller, limits);
    return member;
  });
}

/**
 * Removes a user from the organisation of the caller, revokes the user's keys and deletes the user's OAuth tokens; this
 * takes effect at once in this process. The rows of user and keys stay, because usage and feedback show the names. As
 * with single keys, a caller cannot revoke a key that has a permission that the caller lacks.
 *
 * @throws NOT_FOUND if the organisation has no such user; FORBIDDEN with the permission that the caller lacks; CONFLICT
 *   if no other user has a key that manages the organisation.
 */
export async function removeMember(
  { database, authenticator }: { database: Database; authenticator: Authenticator },
  caller: Caller,
  userId: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    // Removals of one organisation run one after the other, so that two admins cannot remove each other.
    await tx.query('SELECT FROM organizations WHERE id = $1 FOR UPDATE', [caller.organizationId]);
    const [member] = await tx.query('SELECT FROM users WHERE id = $1 AND organization_id = $2 AND removed_at IS NULL', [
      userId,
      caller.organizationId,
    ]);
    if (member === undefined) throw runlakeError('NOT_FOUND', { what: 'Member' });
    const keys = await tx.query<{ permissions: string[]; read_only: boolean; organization_wide: boolean }>(
      `SELECT permissions, read_only, workspace_ids IS NULL AS organization_wide FROM api_keys
       WHERE user_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) FOR UPDATE`,
      [userId],
    );
    for (const key of keys) {
      for (const permission of computeEffectivePermissions(key.permissions, key.read_only, key.organization_wide)) {
        requirePermission(caller, permission);
      }
    }
    const [admin] = await tx.query(
      `SELECT FROM api_keys k JOIN users u ON u.id = k.user_id
       WHERE u.organization_id = $1 AND u.id <> $2 AND u.removed_at IS NULL AND k.revoked_at IS NULL
         AND (k.expires_at IS NULL OR k.expires_at > now()) AND k.workspace_ids IS NULL AND NOT k.read_only
         AND k.permissions && $3::text[] LIMIT 1`,
      [caller.organizationId, userId, [EVERYTHING, 'organization:manage']],
    );
    if (admin === undefined) {
      throw runlakeError('CONFLICT', {
        reason: 'No other member has a key that manages the organization. Create one first.',
      });
    }
    await tx.execute('UPDATE api_keys SET revoked_at = now() WHERE user_id = $1 AND revoked_at IS NULL', [userId]);
    await tx.execute('UPDATE users SET removed_at = now() WHERE id = $1', [userId]);
    // The id, as text, is the user of tokens.
    const ofUser = 'workspace_id IN (SELECT id FROM workspaces WHERE organization_id = $1) AND user_id = $2';
    const owner = [caller.organizationId, userId.toLowerCase()];
    // In this order: an authentication that completes meanwhile is locked until it has stored its token.
    await tx.execute(`DELETE FROM oauth_authentications WHERE ${ofUser}`, owner);
    await tx.execute(`DELETE FROM oauth_tokens WHERE ${ofUser}`, owner);
  });
  authenticator.forgetAll();
}
