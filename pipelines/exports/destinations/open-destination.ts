import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { connectDestination } from './connect-destination.ts';
import type { DestinationConfig, DestinationCredentials, DestinationType } from './destination-config.ts';
import type { DestinationDeps } from './destination-deps.ts';
import { noDestination } from './read-destination.ts';

interface Row {
  readonly destination_type: DestinationType;
  readonly config: DestinationConfig;
  readonly sealed_credentials: string | null;
}

/**
 * Opens the object store of a destination; the caller closes it. Connects at the first call.
 *
 * @throws NOT_FOUND, DESTINATION_TYPE_OFF, DESTINATION_CREDENTIALS_REQUIRED, SEAL_KEY_UNKNOWN, SEAL_BROKEN, and errors
 *   of the database.
 */
export async function openDestination(
  deps: DestinationDeps,
  { workspaceId, destinationId }: { readonly workspaceId: string; readonly destinationId: string },
): Promise<ObjectStore> {
  const [row] = await deps.database.query<Row>(
    `SELECT destination_type, config, sealed_credentials FROM bulk_export_destinations
     WHERE workspace_id = $1 AND id = $2 AND deleted_at IS NULL`,
    [workspaceId, destinationId],
  );
  if (row === undefined) throw noDestination();
  const sealed = row.sealed_credentials;
  const credentials =
    sealed === null ? undefined : (JSON.parse(deps.sealer.open(sealed, destinationId).text) as DestinationCredentials);
  return connectDestination(deps, row, credentials);
}
