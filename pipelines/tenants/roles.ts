/** Roles of members who sign in through OpenID Connect. */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { type Actor, runAsActor } from '../../infra/postgres/actor.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { recordAuditLog } from './audit-logs.ts';
import type { Authenticator } from './authenticate.ts';
import { requireMemberQuota } from './members.ts';
import { computeEffectivePermissions, EVERYTHING, permissions } from './permissions.ts';
import type { SignInKey } from './sign-in-links.ts';

/** From the most powerful to the least. */
export const roles = ['admin', 'editor', 'viewer'] as const;
export type Role = (typeof roles)[number];

/** A member as the provider describes it. */
export interface OidcMember {
  readonly email: string;
  readonly fullName: string | undefined;
  readonly role: Role;
}

/** Permissions of the key of a role. An editor changes the content of workspaces, but no keys, secrets or deployments. */
const permissionsByRole: Readonly<Record<Role, readonly string[]>> = {
  admin: [EVERYTHING],
  editor: permissions
    .filter(
      ({ name, scope, reads }) =>
        reads || (scope === 'workspace' && !/^(?:api-keys|secrets|deployments|oauth):/.test(name)),
    )
    .map(({ name }) => name),
  viewer: [EVERYTHING],
};

interface RoleKey {
  readonly id: string;
  readonly role: Role;
  readonly isValid: boolean;
}

/**
 * Returns the key that a member's sessions stand for; creates member and key if they do not exist. The secret of such a
 * key is discarded, so the key works only through sessions. A key never changes: another role gets another key, which
 * ends the sessions of the former one. A lower role also revokes the API keys of the member that exceed it; in this
 * process all that takes effect at once. Members belong to the first organisation, which is the operator's.
 *
 * @throws LIMIT_REACHED
 */
export async function findMemberKey(
  { database, authenticator }: { readonly database: Database; readonly authenticator: Authenticator },
  { email, fullName, role }: OidcMember,
  { ip, limits }: { readonly ip: string; readonly limits: Pick<Config, 'maxMembers'> },
): Promise<SignInKey> {
  const actor: Actor = { kind: 'session', id: null, name: email, organization_id: null, ip };
  const found = await runAsActor(actor, () =>
    database.transaction(async (tx) => {
      // Sign-ins of a member run one after the other.
      const [organization] = await tx.query<{ id: string }>(
        'SELECT id FROM organizations ORDER BY created_at, id LIMIT 1 FOR NO KEY UPDATE',
      );
      const organizationId = organization!.id;
      const userId = await findOrAddMember(tx, { organizationId, email, fullName, limits });
      const [former] = await tx.query<RoleKey>(
        `SELECT id, sign_in_role AS role, revoked_at IS NULL AS "isValid" FROM api_keys
         WHERE user_id = $1 AND sign_in_role IS NOT NULL ORDER BY revoked_at IS NULL DESC, created_at DESC LIMIT 1`,
        [userId],
      );
      const key = former?.isValid === true ? former : undefined;
      if (key?.role === role) return { keyId: key.id, organizationId, userEmail: email };
      if (key) await tx.execute('UPDATE api_keys SET revoked_at = now() WHERE id = $1', [key.id]);
      // A member without a former role keeps the keys that an administrator has created for them.
      if (former && roles.indexOf(role) > roles.indexOf(former.role)) await revokeKeysAbove(tx, { userId, role });
      const target = { kind: 'member', id: userId };
      const details = { from: key?.role ?? null, to: role };
      await recordAuditLog(tx, { organizationId, action: 'member.role', target, details });
      return { keyId: await insertRoleKey(tx, { organizationId, userId, role }), organizationId, userEmail: email };
    }),
  );
  authenticator.forgetAll();
  return found;
}

/** Revokes the API keys of a member that have a permission which the role lacks. */
async function revokeKeysAbove(
  tx: Sql,
  { userId, role }: { readonly userId: string; readonly role: Role },
): Promise<void> {
  const granted = computeEffectivePermissions(permissionsByRole[role], role === 'viewer', true);
  const keys = await tx.query<{ id: string; permissions: string[]; readOnly: boolean; organizationWide: boolean }>(
    `SELECT id, permissions, read_only AS "readOnly", workspace_ids IS NULL AS "organizationWide" FROM api_keys
     WHERE user_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()) FOR UPDATE`,
    [userId],
  );
  const exceeding = keys.filter(({ permissions: stored, readOnly, organizationWide }) =>
    [...computeEffectivePermissions(stored, readOnly, organizationWide)].some((name) => !granted.has(name)),
  );
  await tx.execute('UPDATE api_keys SET revoked_at = now() WHERE id = ANY ($1)', [exceeding.map(({ id }) => id)]);
}

async function findOrAddMember(
  tx: Sql,
  member: {
    readonly organizationId: string;
    readonly email: string;
    readonly fullName: string | undefined;
    readonly limits: Pick<Config, 'maxMembers'>;
  },
): Promise<string> {
  const { organizationId, email, fullName, limits } = member;
  const [known] = await tx.query<{ id: string }>(
    'SELECT id FROM users WHERE organization_id = $1 AND lower(email) = lower($2) AND removed_at IS NULL',
    [organizationId, email],
  );
  if (known) return known.id;
  const id = randomUUID();
  await tx.execute('INSERT INTO users (id, organization_id, email, full_name) VALUES ($1, $2, $3, $4)', [
    ...[id, organizationId, email, fullName ?? null],
  ]);
  await requireMemberQuota(tx, { organizationId }, limits);
  return id;
}

async function insertRoleKey(
  tx: Sql,
  { organizationId, userId, role }: { readonly organizationId: string; readonly userId: string; readonly role: Role },
): Promise<string> {
  const id = randomUUID();
  await tx.execute(
    `INSERT INTO api_keys (id, organization_id, workspace_ids, default_workspace_id, user_id, hash, short_key, description,
       permissions, read_only, sign_in_role)
     VALUES ($1, $2, NULL, (SELECT id FROM workspaces WHERE organization_id = $2 AND deleted_at IS NULL
       ORDER BY created_at, id LIMIT 1), $3, $4, 'sign-in', $5, $6, $7, $8)`,
    [
      ...[id, organizationId, userId, randomBytes(32), `Sign-in through OpenID Connect as ${role}`],
      ...[permissionsByRole[role], role === 'viewer', role],
    ],
  );
  return id;
}
