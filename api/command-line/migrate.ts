import { loadConfig } from '../../infra/config/load.ts';
import { migrate } from '../../infra/migrations/migrate.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { findStores, openStores } from './open-stores.ts';

/** `runlake migrate`: migrates the stores to the schema of this release and prints the applied migrations. */
export async function migrateStores(): Promise<void> {
  const { config } = loadConfig();
  const logger = createLogger('error', 'migrate');
  const stores = openStores(await findStores(config), config, logger);
  try {
    const { applied } = await migrate({ ...stores, logger });
    console.log(applied.length === 0 ? 'Both stores are up to date.' : `Applied ${applied.join(', ')}.`);
  } finally {
    await stores.close();
  }
}
