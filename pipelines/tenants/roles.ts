/** Roles of members who sign in through OpenID Connect. */
import { randomBytes, randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { type Actor, runAsActor } from '../../infra/postgres/actor.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { recordAuditLog } from './audit-logs.ts';
import { requireMemberQuota } from './members.ts';
import type { OidcMember } from './oidc.ts';
import { EVERYTHING, permissions } from './permissions.ts';
import type { SignInKey } from './sign-in-links.ts';

/** From the most powerful to the least. */
export const roles = ['admin', 'editor', 'viewer'] as const;
export type Role = (typeof roles)[number];

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
}

/**
 * Returns the key that a member's sessions stand for; creates member and key if they do not exist. The secret of such a
 * key is discarded, so the key works only through sessions. A key never changes: another role gets another key, which
 * ends the sessions of the former one. Members belong to the first organisation, which is the operator's.  @throws
 * LIMIT_REACHED
 */
export function findMemberKey(
  database: Database,
  { email, fullName, role }: OidcMember,
  { ip, limits }: { readonly ip: string; readonly limits: Pick<Config, 'maxMembers'> },
): Promise<SignInKey> {
  const actor: Actor = { kind: 'session', id: null, name: email, organization_id: null, ip };
  return runAsActor(actor, () =>
    database.transaction(async (tx) => {
      // Sign-ins of a member run one after the other.
      const [organization] = await tx.query<{ id: string }>(
        'SELECT id FROM organizations ORDER BY created_at, id LIMIT 1 FOR NO KEY UPDATE',
      );
      const organizationId = organization!.id;
      const userId = await findOrAddMember(tx, { organizationId, email, fullName, limits });
      const [key] = await tx.query<RoleKey>(
        `SELECT id, sign_in_role AS role FROM api_keys
         WHERE user_id = $1 AND sign_in_role IS NOT NULL AND revoked_at IS NULL`,
        [userId],
      );
      if (key?.role === role) return { keyId: key.id, organizationId, userEmail: email };
      if (key) await tx.execute('UPDATE api_keys SET revoked_at = now() WHERE id = $1', [key.id]);
      const target = { kind: 'member', id: userId };
      const details = { from: key?.role ?? null, to: role };
      await recordAuditLog(tx, { organizationId, action: 'member.role', target, details });
      return { keyId: await insertRoleKey(tx, { organizationId, userId, role }), organizationId, userEmail: email };
    }),
  );
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
