import { migrate } from '../../infra/migrations/migrate.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { Stores } from './open-stores.ts';
import { requireStoreVersions } from './require-store-versions.ts';

/**
 * Brings the stores to the schema of this release, whichever role starts first: one migrates, the others wait for it.
 * @throws STORE_TOO_OLD, what `migrate` throws, and the stores' own faults where they cannot be asked.
 */
export async function prepareStores({ warehouse, database }: Stores, logger: Logger): Promise<void> {
  await requireStoreVersions({ warehouse, database });
  await migrate({ database, warehouse, logger });
}
