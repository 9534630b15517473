/** Reviewers of annotation queues: users that have to review each run of a queue whose access mode is `assigned`. */
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { lockQueue } from './queue-runs.ts';

/** Maximum number of reviewers of a queue. */
const maxReviewers = 100;

/**
 * Makes a user of the organisation a reviewer of a queue; does nothing if the user is one.
 *
 * @throws NOT_FOUND if the workspace has no such queue, or the organisation no such user; QUEUE_FULL.
 */
export async function addReviewer(
  database: Database,
  { workspaceId, organizationId }: WorkspaceCaller,
  queueId: string,
  userId: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    await lockQueue(tx, workspaceId, queueId);
    const [user] = await tx.query('SELECT FROM users WHERE id = $1 AND organization_id = $2 AND removed_at IS NULL', [
      userId,
      organizationId,
    ]);
    if (!user) throw runlakeError('NOT_FOUND', { what: 'Member' });
    await tx.execute(
      'INSERT INTO annotation_queue_reviewers (queue_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING',
      [queueId, userId],
    );
    const [counted] = await tx.query<{ count: number }>(
      `SELECT count(*) AS count FROM annotation_queue_reviewers AS r JOIN users AS u ON u.id = r.user_id
       WHERE r.queue_id = $1 AND u.removed_at IS NULL`,
      [queueId],
    );
    if (counted!.count > maxReviewers) throw runlakeError('QUEUE_FULL', { limit: maxReviewers, what: 'reviewers' });
  });
}

/** Removes a reviewer; does nothing if the user is none. @throws NOT_FOUND if the workspace has no such queue. */
export async function removeReviewer(
  database: Database,
  workspaceId: string,
  queueId: string,
  userId: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    await lockQueue(tx, workspaceId, queueId);
    await tx.execute('DELETE FROM annotation_queue_reviewers WHERE queue_id = $1 AND user_id = $2', [queueId, userId]);
  });
}
