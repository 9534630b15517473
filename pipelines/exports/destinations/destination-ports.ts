import type { Config } from '../../../infra/config/settings.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-options.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createSealer, type Sealer } from '../../../infra/sealing/sealer.ts';
import { trustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';
import { CheckRoom } from './check-room.ts';

/** What everything about destinations needs. Made by {@link destinationPorts}. */
export interface DestinationPorts {
  readonly database: Database;
  readonly sealer: Sealer;
  readonly config: Pick<
    Config,
    'localExportRoot' | 'allowPrivateEndpoints' | 'allowDefaultCredentials' | 'exportMaxDestinations'
  >;
  readonly checks: CheckRoom;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities: readonly string[] | undefined;
  /** Times and attempts at stores. Undefined: those of `infra/objects`. */
  readonly limits?: S3Limits | undefined;
}

/** @param secretKey The one that the process runs with: configured, or kept in the data folder. @throws TLS_FILE_UNUSABLE */
export function destinationPorts(config: Config, database: Database, secretKey: string): DestinationPorts {
  const formerSecretKeys = config.formerSecretKeys?.split(',').flatMap((key) => key.trim() || []);
  const sealer = createSealer({
    secretKey,
    formerSecretKeys,
    purpose: 'destinations',
    what: 'The credentials of the destination',
  });
  return { database, sealer, config, checks: new CheckRoom(), authorities: trustedAuthorities(config) };
}
