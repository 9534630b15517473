import type { Config } from '../../../infra/config/settings.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createSealer } from '../../../infra/sealing/sealer.ts';
import { trustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';
import type { DestinationPorts } from './ports.ts';

/** @param secretKey The one that the process runs with: configured, or kept in the data folder. @throws TLS_FILE_UNUSABLE */
export function destinationPorts(config: Config, database: Database, secretKey: string): DestinationPorts {
  const formerSecretKeys = config.formerSecretKeys?.split(',').flatMap((key) => key.trim() || []);
  const sealer = createSealer({
    secretKey,
    formerSecretKeys,
    purpose: 'destinations',
    what: 'The credentials of the destination',
  });
  return { database, sealer, config, authorities: trustedAuthorities(config) };
}
