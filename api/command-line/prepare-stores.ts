import { migrate } from '../../infra/migrations/migrate.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { Stores } from './open-stores.ts';
import { requireStoreVersions } from './require-store-versions.ts';

/**
 * Migrates the stores to the schema of this release. Any role may start first: one process migrates, the others wait for it.
 * @throws STORE_TOO_OLD, the errors of `migrate`, and the errors of the stores if they are unreachable.
 */
export async function prepareStores({ clickhouse, database }: Stores, logger: Logger): Promise<void> {
  await requireStoreVersions({ clickhouse, database });
  await migrate({ database, clickhouse, logger });
}
