import type { Database } from '../../../infra/postgres/pool.ts';
import { type DestinationRecord, destinationColumns } from './destination-config.ts';

/**
 * The destinations of a workspace, oldest first. The id breaks ties, so that consecutive pages neither repeat nor skip
 * a destination.
 */
export function listDestinations(
  database: Database,
  workspaceId: string,
  page: { readonly limit: number; readonly offset: number },
): Promise<DestinationRecord[]> {
  return database.query<DestinationRecord>(
    `SELECT ${destinationColumns} FROM bulk_export_destinations WHERE workspace_id = $1 AND deleted_at IS NULL
     ORDER BY created_at, id LIMIT $2 OFFSET $3`,
    [workspaceId, page.limit, page.offset],
  );
}
