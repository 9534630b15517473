import { loadConfig } from '../../infra/config/load.ts';
import { migrate } from '../../infra/migrations/migrate.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { findStores, openStores } from './open-stores.ts';

/** `runlake migrate`: brings the stores to the schema of this release and says what was applied. */
export async function migrateStores(): Promise<void> {
  const { config } = loadConfig();
  const logger = createLogger('error', 'migrate');
  const stores = openStores(await findStores(config), config, logger);
  try {
    const { applied } = await migrate({ ...stores, logger });
    console.log(applied.length === 0 ? 'Nothing to do: both stores are up to date.' : `Applied ${applied.join(', ')}.`);
  } finally {
    await stores.close();
  }
}
