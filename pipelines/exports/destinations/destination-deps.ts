import type { Config } from '../../../infra/config/settings.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-options.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createSealer, type Sealer } from '../../../infra/sealing/sealer.ts';
import { trustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';
import { CheckLimiter } from './check-limiter.ts';

/** Dependencies of all destination operations. Created by {@link destinationPorts}. */
export interface DestinationDeps {
  readonly database: Database;
  readonly sealer: Sealer;
  readonly config: Pick<
    Config,
    'localExportRoot' | 'allowPrivateEndpoints' | 'allowDefaultCredentials' | 'exportMaxDestinations'
  >;
  readonly checks: CheckLimiter;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities: readonly string[] | undefined;
  /** Timeouts and attempts for object stores. Undefined: the defaults of `infra/objects`. */
  readonly limits?: S3Limits | undefined;
}

/** @param secretKey The secret key of this process: configured, or kept in the data folder. @throws TLS_FILE_UNUSABLE */
export function destinationDeps(config: Config, database: Database, secretKey: string): DestinationDeps {
  const formerSecretKeys = config.formerSecretKeys?.split(',').flatMap((key) => key.trim() || []);
  const sealer = createSealer({
    secretKey,
    formerSecretKeys,
    purpose: 'destinations',
    what: 'The credentials of the destination',
  });
  return { database, sealer, config, checks: new CheckLimiter(), authorities: trustedAuthorities(config) };
}
