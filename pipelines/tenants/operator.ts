import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { type Caller, requirePermission } from './caller.ts';
import { computeEffectivePermissions, EVERYTHING } from './permissions.ts';

interface OperatorRow {
  readonly organization_id: string;
  readonly user_id: string;
  readonly email: string;
  readonly workspaces: string[];
}

/**
 * Returns the caller for the command line, which has direct access to the stores and therefore all permissions. The
 * caller is the first user of the given organisation or, if none is given, of the first organisation.
 *
 * @throws NOT_FOUND before the first start, or if no organisation has this id.
 */
export async function loadOperator(database: Database, organizationId?: string): Promise<Caller> {
  const [first] = await database.query<OperatorRow>(
    `SELECT o.id AS organization_id, u.id AS user_id, u.email,
       ARRAY(SELECT id FROM workspaces WHERE organization_id = o.id AND deleted_at IS NULL ORDER BY created_at, id) AS workspaces
     FROM organizations o JOIN users u ON u.organization_id = o.id AND u.removed_at IS NULL
     WHERE $1::uuid IS NULL OR o.id = $1
     ORDER BY o.created_at, o.id, u.created_at, u.id LIMIT 1`,
    [organizationId ?? null],
  );
  if (first === undefined) throw runlakeError('NOT_FOUND', { what: 'Organisation (start `runlake all` once)' });
  return {
    organizationId: first.organization_id,
    workspaceId: first.workspaces[0],
    keyId: nilUuid,
    userId: first.user_id,
    userEmail: first.email,
    permissions: computeEffectivePermissions([EVERYTHING], false, true),
    organizationWide: true,
    readableWorkspaceIds: new Set(first.workspaces),
    readOnly: false,
    storedPermissions: [EVERYTHING],
    expiresAt: undefined,
  };
}

/**
 * Returns whether the caller belongs to the organisation of the operator, which is the first organisation and cannot be
 * deleted.
 */
export async function isOperator(sql: Sql, caller: Pick<Caller, 'organizationId'>): Promise<boolean> {
  const [first] = await sql.query<{ id: string }>('SELECT id FROM organizations ORDER BY created_at, id LIMIT 1');
  return first?.id === caller.organizationId;
}

/**
 * Checks that the caller may manage organisations.
 *
 * @throws FORBIDDEN, OPERATOR_ONLY if the caller may not manage organisations.
 */
export async function requireOperator(sql: Sql, caller: Caller): Promise<void> {
  requirePermission(caller, 'organizations:manage');
  if (!(await isOperator(sql, caller))) throw runlakeError('OPERATOR_ONLY');
}
