import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { countUnreadable, resealColumns, type SealedColumn } from '../../infra/sealing/reseal.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { sealedDeploymentColumns } from '../../pipelines/deployments/deployment-secrets.ts';
import { createDestinationSealer, sealedCredentialsColumn } from '../../pipelines/exports/destinations/destination.ts';
import { sealedClientSecretColumn } from '../../pipelines/oauth/provider.ts';
import { sealedOAuthTokenColumns } from '../../pipelines/oauth/token.ts';
import { createShareSealer, sealedTokenColumn } from '../../pipelines/shares/share-tokens.ts';
import { createSecretSealer, sealedSecretColumn } from '../../pipelines/tenants/secrets.ts';

/** What this installation encrypts with the secret key, and where it is stored. */
interface SealedSecrets {
  readonly name: string;
  readonly sealer: Sealer;
  readonly columns: readonly SealedColumn[];
}

function listSealedSecrets(config: Config, secretKey: string): SealedSecrets[] {
  const sealer = createSecretSealer(config, secretKey);
  return [
    { name: 'tokens of shares', sealer: createShareSealer(config, secretKey), columns: [sealedTokenColumn] },
    { name: 'secrets of workspaces', sealer, columns: [sealedSecretColumn] },
    { name: 'secrets of deployments', sealer, columns: sealedDeploymentColumns },
    { name: 'OAuth secrets', sealer, columns: [sealedClientSecretColumn, ...sealedOAuthTokenColumns] },
    {
      name: 'credentials of destinations',
      sealer: createDestinationSealer(config, secretKey),
      columns: [sealedCredentialsColumn],
    },
  ];
}

/**
 * Encrypts everything again that was encrypted with a former key, and warns about what none of the keys can decrypt.
 */
export async function resealSecrets(
  database: Database,
  config: Config,
  { secretKey, logger }: { readonly secretKey: string; readonly logger: Logger },
): Promise<void> {
  if (config.formerSecretKeys !== undefined) {
    const resealed: Record<string, number> = {};
    for (const { name, columns, sealer } of listSealedSecrets(config, secretKey)) {
      resealed[name] = await resealColumns(database, columns, { sealer, logger });
    }
    logger.info({ resealed }, 'resealed the secrets of former secret keys');
  }
  await inspectSecrets(database, config, secretKey).catch((err: unknown) =>
    logger.warn({ err }, 'stored secrets cannot be decrypted; see `runlake doctor`'),
  );
}

/**
 * Checks that this process has the keys of all stored secrets, and describes the result.
 *
 * @throws PART_UNUSABLE with the number of secrets of each kind; errors of the database.
 */
export async function inspectSecrets(
  database: Pick<Database, 'query'>,
  config: Config,
  secretKey: string,
): Promise<string> {
  const lost: string[] = [];
  for (const { name, columns, sealer } of listSealedSecrets(config, secretKey)) {
    const count = await countUnreadable(database, columns, sealer);
    if (count > 0) lost.push(`${name}: ${count}`);
  }
  if (lost.length === 0) return 'the key of all stored secrets is known';
  throw runlakeError('PART_UNUSABLE', {
    reason: `Stored secrets are encrypted with another secret key (${lost.join(', ')})`,
    remedy:
      'Add that key to RUNLAKE_FORMER_SECRET_KEYS, with embedded engines the content of `secret.key` in a backup, and restart. ' +
      'If it is lost, enter these secrets again, and share again what was shared.',
  });
}
