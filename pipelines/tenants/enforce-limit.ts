import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';

export type Limit = {
  /** Maximum number of objects that an owner may have. */
  readonly max: number;
  /**
   * SQL that counts the objects of the owner `$1`; the column is named `count`. For `organizationOfWorkspace`, `$1` is the
   * organisation.
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

const lockOwnerSql = {
  organization: 'SELECT id FROM organizations WHERE id = $1 FOR NO KEY UPDATE',
  organizationOfWorkspace:
    'SELECT id FROM organizations WHERE id = (SELECT organization_id FROM workspaces WHERE id = $1) FOR NO KEY UPDATE',
  workspace: 'SELECT id FROM workspaces WHERE id = $1 FOR NO KEY UPDATE',
  deployment: 'SELECT deployment_id AS id FROM agents.deployments WHERE deployment_id = $1 FOR NO KEY UPDATE',
  tagKey: 'SELECT id FROM tag_keys WHERE id = $1 FOR NO KEY UPDATE',
  tagValue: 'SELECT id FROM tag_values WHERE id = $1 FOR NO KEY UPDATE',
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
 * @param id Id of the owner; for `organizationOfWorkspace`, that of the workspace.
 * @throws LIMIT_REACHED, or the error of the limit.
 */
export async function enforceLimit(tx: Sql, owner: keyof typeof lockOwnerSql, id: string, limit: Limit): Promise<void> {
  const { max, countSql } = limit;
  const [ownerRow] = await tx.query<{ id: string }>(lockOwnerSql[owner], [id]);
  const [found] = await tx.query<{ count: number }>(countSql, [ownerRow?.id]);
  if (found === undefined || found.count <= max) return;
  if ('createError' in limit) throw limit.createError();
  const { what, hint = 'Delete those that are not needed' } = limit;
  throw runlakeError('LIMIT_REACHED', { limit: max, what, hint });
}
