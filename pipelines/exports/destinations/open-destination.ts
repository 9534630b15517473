import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { openLocalStore } from '../../../infra/objects/open-local-store.ts';
import { openS3Store } from '../../../infra/objects/s3/open-s3-store.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-connection.ts';
import {
  createDestinationNotFoundError,
  type DestinationConfig,
  type DestinationCredentials,
  type DestinationDeps,
  type DestinationType,
} from './destination.ts';

export interface DestinationSettings {
  readonly destination_type: DestinationType;
  readonly config: DestinationConfig;
}

/**
 * Creates the object store client of a destination from the current settings of the operator. The client connects at
 * its first request.
 *
 * @throws DESTINATION_TYPE_OFF, DESTINATION_CREDENTIALS_REQUIRED.
 */
export function connectDestination(
  deps: Pick<DestinationDeps, 'config' | 'authorities' | 'limits'>,
  { destination_type: type, config }: DestinationSettings,
  credentials: DestinationCredentials | undefined,
  limits: S3Limits | undefined = deps.limits,
): ObjectStore {
  if (type === 'local') {
    const root = deps.config.localExportRoot;
    if (root === undefined) throw runlakeError('DESTINATION_TYPE_OFF');
    return openLocalStore({ root, prefix: config.prefix });
  }
  if (credentials === undefined && !deps.config.allowDefaultCredentials) {
    throw runlakeError('DESTINATION_CREDENTIALS_REQUIRED');
  }
  return openS3Store({
    bucket: config.bucket_name ?? undefined,
    prefix: config.prefix,
    region: config.region ?? undefined,
    endpointUrl: config.endpoint_url ?? undefined,
    isBucketInEndpoint: !config.include_bucket_in_prefix,
    addressingStyle: config.config_kwargs_s3?.addressing_style ?? 'auto',
    credentials: credentials && {
      accessKeyId: credentials.access_key_id,
      secretAccessKey: credentials.secret_access_key,
      sessionToken: credentials.session_token ?? undefined,
    },
    allowPrivateEndpoints: deps.config.allowPrivateEndpoints,
    authorities: deps.authorities,
    limits,
  });
}

interface Row {
  readonly destination_type: DestinationType;
  readonly config: DestinationConfig;
  readonly sealed_credentials: string | null;
}

/**
 * Opens an object store client for a destination; the caller must close it. The client connects at its first request.
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
  if (row === undefined) throw createDestinationNotFoundError();
  const sealed = row.sealed_credentials;
  const credentials =
    sealed === null ? undefined : (JSON.parse(deps.sealer.open(sealed, destinationId).text) as DestinationCredentials);
  return connectDestination(deps, row, credentials);
}
