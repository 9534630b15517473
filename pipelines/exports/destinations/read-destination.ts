import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { type DestinationRecord, destinationColumns } from './destination-config.ts';

/** @throws NOT_FOUND if the workspace has no destination with this id. */
export async function readDestination(sql: Sql, workspaceId: string, id: string): Promise<DestinationRecord> {
  const [found] = await sql.query<DestinationRecord>(
    `SELECT ${destinationColumns} FROM bulk_export_destinations WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL`,
    [id, workspaceId],
  );
  if (found === undefined) throw noDestination();
  return found;
}

export const noDestination = () => runlakeError('NOT_FOUND', { what: 'Bulk export destination' });
