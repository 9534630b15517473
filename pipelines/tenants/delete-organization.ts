/**
 * Deletes organisations: their keys, users and workspaces become invalid at once, and jobs delete the data
 * (`delete-workspace-data.ts`).
 *
 * Invariant: `deleted_at` of an organisation is never cleared, and no key of such an organisation is accepted.
 *
 *   1. One transaction sets `deleted_at` of the organisation and its workspaces, revokes its keys and removes its users.
 *   2. A job is queued for each workspace.
 *
 * A crash after step 1 leaves `purged_at` of the workspaces empty; the job `requeue-deletions` then queues them, as
 * does a repeated request.
 */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import type { Caller } from './caller.ts';
import { requireOperator } from './operator.ts';
import { type ListedOrganization, listedColumns } from './read-organization.ts';

/**
 * Idempotent; a repeated call queues again the workspaces that are not purged yet.
 *
 * @throws FORBIDDEN, OPERATOR_ONLY, NOT_FOUND, CONFLICT for the organisation of the operator.
 */
export async function deleteOrganization(
  {
    database,
    authenticator,
    enqueueWorkspaceDeletion,
  }: {
    readonly database: Database;
    readonly authenticator: Pick<Authenticator, 'forgetAll'>;
    readonly enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
  },
  caller: Caller,
  organizationId: string,
): Promise<ListedOrganization> {
  const id = organizationId.toLowerCase();
  const deleted = await database.transaction(async (tx) => {
    await requireOperator(tx, caller);
    const [found] = await tx.query('SELECT FROM organizations WHERE id = $1 FOR UPDATE', [id]);
    if (found === undefined) throw runlakeError('NOT_FOUND', { what: 'Organization' });
    if (id === caller.organizationId) {
      throw runlakeError('CONFLICT', {
        reason: 'The first organization belongs to the operator and cannot be deleted.',
      });
    }
    await tx.execute('UPDATE organizations SET deleted_at = coalesce(deleted_at, now()) WHERE id = $1', [id]);
    await tx.execute('UPDATE workspaces SET deleted_at = now() WHERE organization_id = $1 AND deleted_at IS NULL', [
      id,
    ]);
    await tx.execute('UPDATE api_keys SET revoked_at = now() WHERE organization_id = $1 AND revoked_at IS NULL', [id]);
    await tx.execute('UPDATE users SET removed_at = now() WHERE organization_id = $1 AND removed_at IS NULL', [id]);
    const [listed] = await tx.query<ListedOrganization>(
      `SELECT ${listedColumns} FROM organizations o WHERE o.id = $1`,
      [id],
    );
    const due = await tx.query<{ id: string }>(
      'SELECT id FROM workspaces WHERE organization_id = $1 AND purged_at IS NULL ORDER BY created_at, id',
      [id],
    );
    return { listed: listed!, due };
  });
  authenticator.forgetAll();
  for (const workspace of deleted.due) await enqueueWorkspaceDeletion(workspace.id);
  return deleted.listed;
}
