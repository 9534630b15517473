import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  type DestinationCredentials,
  type DestinationRecord,
  destinationColumns,
  sealCredentials,
} from './destination-config.ts';
import type { DestinationDeps } from './destination-deps.ts';
import { noDestination, readDestination } from './read-destination.ts';
import { tryDestination } from './try-destination.ts';

export interface DestinationChange {
  readonly displayName?: string | null | undefined;
  readonly credentials?: DestinationCredentials | null | undefined;
}

/**
 * Renames a destination, and replaces its credentials after writing a test object with the new ones. Absent and null
 * fields stay unchanged. Running exports use the new credentials from their next attempt on.
 *
 * @throws NOT_FOUND, BAD_REQUEST, errors of {@link tryDestination}.
 */
export async function updateDestination(
  deps: DestinationDeps,
  workspaceId: string,
  id: string,
  change: DestinationChange,
): Promise<DestinationRecord> {
  const destination = await readDestination(deps.database, workspaceId, id);
  const credentials = change.credentials ?? undefined;
  if (credentials !== undefined) {
    if (destination.destination_type === 'local') {
      throw runlakeError('BAD_REQUEST', { reason: 'A destination of type local has no credentials.' });
    }
    await tryDestination(deps, workspaceId, destination, credentials);
  }
  // Sealed for the id as stored; the caller may have written it in capitals.
  const stored = credentials && sealCredentials(deps.sealer, destination.id, credentials);
  const [changed] = await deps.database.query<DestinationRecord>(
    `UPDATE bulk_export_destinations SET display_name = coalesce($3, display_name),
       sealed_credentials = coalesce($4, sealed_credentials), credentials_keys = coalesce($5, credentials_keys),
       updated_at = now()
     WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL RETURNING ${destinationColumns}`,
    [id, workspaceId, change.displayName ?? null, stored?.sealed ?? null, stored?.keys ?? null],
  );
  if (changed === undefined) throw noDestination();
  return changed;
}
