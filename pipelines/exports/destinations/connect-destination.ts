import { fault } from '../../../infra/errors/runlake-error.ts';
import { openLocalStore } from '../../../infra/objects/local/open-local-store.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { openS3Store } from '../../../infra/objects/s3/open-s3-store.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-options.ts';
import type { DestinationConfig, DestinationCredentials, DestinationType } from './destination-config.ts';
import type { DestinationPorts } from './destination-ports.ts';

export interface DestinationSettings {
  readonly destination_type: DestinationType;
  readonly config: DestinationConfig;
}

/**
 * The object store of a destination, subject to the operator's current settings. Connects at the first call.
 *
 * @throws DESTINATION_TYPE_OFF, DESTINATION_CREDENTIALS_REQUIRED.
 */
export function connectDestination(
  ports: Pick<DestinationPorts, 'config' | 'authorities' | 'limits'>,
  { destination_type: type, config }: DestinationSettings,
  credentials: DestinationCredentials | undefined,
  limits: S3Limits | undefined = ports.limits,
): ObjectStore {
  if (type === 'local') {
    const root = ports.config.localExportRoot;
    if (root === undefined) throw fault('DESTINATION_TYPE_OFF');
    return openLocalStore({ root, prefix: config.prefix });
  }
  if (credentials === undefined && !ports.config.allowDefaultCredentials) {
    throw fault('DESTINATION_CREDENTIALS_REQUIRED');
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
    allowPrivateEndpoints: ports.config.allowPrivateEndpoints,
    authorities: ports.authorities,
    limits,
  });
}
