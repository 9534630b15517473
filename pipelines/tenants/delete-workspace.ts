import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Authenticator } from './authenticate.ts';
import type { Caller } from './caller.ts';

/**
 * Deletes a workspace: requests to it fail at once, and a job deletes its data. Its row and its usage stay. A crash
 * before the job is queued leaves `purged_at` empty; the job `requeue-deletions` then queues it.
 *
 * @throws NOT_FOUND if the caller has no access to a workspace with this id, or it is deleted, CONFLICT if it is the
 *   last one.
 */
export async function deleteWorkspace(
  {
    database,
    authenticator,
    enqueueWorkspaceDeletion,
  }: {
    database: Database;
    authenticator: Authenticator;
    enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
  },
  caller: Caller,
  workspaceId: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    // The lock serialises deletions, so that two concurrent calls cannot delete the last two workspaces.
    await tx.query('SELECT FROM organizations WHERE id = $1 FOR UPDATE', [caller.organizationId]);
    const living = await tx.query<{ id: string }>(
      'SELECT id FROM workspaces WHERE organization_id = $1 AND deleted_at IS NULL',
      [caller.organizationId],
    );
    const reached = caller.organizationWide || caller.readableWorkspaceIds.has(workspaceId.toLowerCase());
    if (!reached || !living.some(({ id }) => id === workspaceId.toLowerCase())) {
      throw runlakeError('NOT_FOUND', { what: 'Workspace' });
    }
    if (living.length === 1)
      throw runlakeError('CONFLICT', { reason: 'The last workspace of an organization cannot be deleted.' });
    await tx.execute('UPDATE workspaces SET deleted_at = now() WHERE id = $1', [workspaceId]);
  });
  authenticator.forgetAll();
  await enqueueWorkspaceDeletion(workspaceId.toLowerCase());
}
