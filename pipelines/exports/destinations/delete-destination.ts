import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { noDestination } from './read-destination.ts';

/**
 * Deletes a destination and its credentials; objects in the bucket stay. It locks the row first, as the creation of an
 * export does, so that no export is left without its destination.
 *
 * @throws NOT_FOUND; DESTINATION_IN_USE while an unfinished export or schedule uses it.
 */
export async function deleteDestination(database: Database, workspaceId: string, id: string): Promise<void> {
  await database.transaction(async (tx) => {
    const [locked] = await tx.query(
      'SELECT FROM bulk_export_destinations WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL FOR UPDATE',
      [id, workspaceId],
    );
    if (locked === undefined) throw noDestination();
    const [use] = await tx.query<{ exports: number }>(
      'SELECT count(*)::int AS exports FROM bulk_exports WHERE destination_id = $1 AND finished_at IS NULL',
      [id],
    );
    if (use !== undefined && use.exports > 0) throw runlakeError('DESTINATION_IN_USE', { exports: use.exports });
    await tx.execute(
      `UPDATE bulk_export_destinations SET deleted_at = now(), updated_at = now(), sealed_credentials = NULL,
         credentials_keys = '{}' WHERE id = $1`,
      [id],
    );
  });
}
