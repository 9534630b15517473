import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';

export type Limit = {
  /** Maximum number of objects that an owner may have. */
  readonly max: number;
  /**
   * SQL that counts the objects of the owner `$1`; the column is named `count`. If the owner is given as `workspaceId`,
   * `$1` is the organisation of the workspace.
   */
  readonly countSql: string;
} & (
  | {
      readonly what: string;
      /** Default: to delete some of them. */
      readonly hint?: string;
    }
  /** Error to throw instead of LIMIT_REACHED. */
  | { readonly createError: () => RunlakeError }
);

/**
 * Builds SQL that counts the rows of a table that belong to workspaces of an organisation. Deleted workspaces are not
 * included.
 */
export function countInWorkspaces(table: string, condition = 'true'): string {
  return `SELECT count(*) AS count FROM ${table} AS counted JOIN workspaces AS w ON w.id = counted.workspace_id
    WHERE w.organization_id = $1 AND w.deleted_at IS NULL AND ${condition}`;
}

/** `workspaceId` means the organisation of the workspace; `ownWorkspaceId` means the workspace itself. */
type Owner =
  | { readonly organizationId: string }
  | { readonly workspaceId: string }
  | { readonly ownWorkspaceId: string }
  | { readonly deploymentId: string }
  | { readonly tagKeyId: string }
  | { readonly tagValueId: string };

const lockOwnerSql = {
  organizationId: 'SELECT id FROM organizations WHERE id = $1 FOR NO KEY UPDATE',
  workspaceId:
    'SELECT id FROM organizations WHERE id = (SELECT organization_id FROM workspaces WHERE id = $1) FOR NO KEY UPDATE',
  ownWorkspaceId: 'SELECT id FROM workspaces WHERE id = $1 FOR NO KEY UPDATE',
  deploymentId: 'SELECT deployment_id AS id FROM agents.deployments WHERE deployment_id = $1 FOR NO KEY UPDATE',
  tagKeyId: 'SELECT id FROM tag_keys WHERE id = $1 FOR NO KEY UPDATE',
  tagValueId: 'SELECT id FROM tag_values WHERE id = $1 FOR NO KEY UPDATE',
} as const;

/**
 * Enforces a limit. If the transaction exceeds the limit, throws an error, so that the transaction is rolled back.
 *
 * Invariant: transactions that create objects of one owner count them one after the other, and each count includes the
 * objects that earlier transactions committed, so that two concurrent transactions cannot exceed a limit together.
 *
 *   1. The caller inserts the object.
 *   2. This function locks the row of the owner until the end of the transaction.
 *   3. A separate statement counts the objects, so it sees everything that was committed before it started.
 *
 * Call this function last in the transaction, so that the lock is held only briefly and the transaction does not wait
 * for other locks while it holds the lock. Objects that were created before a limit was lowered stay.
 *
 * @throws LIMIT_REACHED, or the error of the limit.
 */
export async function enforceLimit(tx: Sql, owner: Owner, limit: Limit): Promise<void> {
  const { max, countSql } = limit;
  const [kind, id] = Object.entries(owner)[0] as [keyof typeof lockOwnerSql, string];
  const [ownerRow] = await tx.query<{ id: string }>(lockOwnerSql[kind], [id]);
  const [found] = await tx.query<{ count: number }>(countSql, [ownerRow?.id]);
  if (found === undefined || found.count <= max) return;
  if ('createError' in limit) throw limit.createError();
  const { what, hint = 'Delete those that are not needed' } = limit;
  throw runlakeError('LIMIT_REACHED', { limit: max, what, hint });
}
