import type { Config } from '../../../infra/config/settings.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-options.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import type { Sealer } from '../../../infra/sealing/sealer.ts';

/** What everything about destinations needs. Made by {@link destinationPorts} of `destination-ports.ts`. */
export interface DestinationPorts {
  readonly database: Database;
  readonly sealer: Sealer;
  readonly config: Pick<Config, 'localExportRoot' | 'allowPrivateEndpoints' | 'allowDefaultCredentials'>;
  /** Certificate authorities to trust, in PEM. */
  readonly authorities: readonly string[] | undefined;
  /** Times and attempts at stores. Undefined: those of `infra/objects`. */
  readonly limits?: S3Limits | undefined;
}
