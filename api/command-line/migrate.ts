import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { checkMigrations, migrate } from '../../infra/migrations/migrate.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { embedsEngines, type Stores, withStores } from './open-stores.ts';

/**
 * What to do if the stores of a process with embedded engines lack migrations. That process applied those of its own
 * release at its start, so its release is older, and must not go on with the schema of this one.
 */
export const restartRemedy =
  'The running process is of an older release: stop it, make a backup, and start this release, which migrates the data';

/**
 * Runs `runlake migrate`: migrates the stores to the schema of this release and prints the applied migrations.
 *
 * @throws PART_UNUSABLE if a process of an older release uses the stores with embedded engines.
 */
export async function migrateStores(): Promise<void> {
  await withStores('migrate', async ({ config, stores, logger }) => {
    if (embedsEngines(config)) {
      const { pending } = await checkMigrations(stores);
      if (pending.length > 0)
        throw runlakeError('PART_UNUSABLE', { reason: `The data lacks ${pending.join(', ')}`, remedy: restartRemedy });
    }
    const { applied } = await migrate({ ...stores, logger });
    console.log(applied.length === 0 ? 'Both stores are up to date.' : `Applied ${applied.join(', ')}.`);
  });
}

/**
 * Migrates the stores to the schema of this release. Any role may start first: one process migrates, and other
 * processes wait for it.
 *
 * @throws STORE_TOO_OLD, the errors of `migrate`, and the errors of unreachable stores.
 */
export async function prepareStores({ clickhouse, database }: Stores, logger: Logger): Promise<void> {
  requireVersion('ClickHouse', await clickhouse.version());
  requireVersion('Postgres', await database.version());
  await migrate({ database, clickhouse, logger });
}

const minimumReleases = {
  ClickHouse: { release: '25.8', variable: 'RUNLAKE_CLICKHOUSE_URL' },
  Postgres: { release: '15', variable: 'RUNLAKE_DATABASE_URL' },
} as const;

/**
 * Checks that a release such as `25.8.3.1` or `15.4 (Debian)` is not older than the minimum release.
 *
 * @throws STORE_TOO_OLD
 */
export function requireVersion(store: keyof typeof minimumReleases, found: string): void {
  const { release, variable } = minimumReleases[store];
  const [minimum, present] = [release, found].map(
    (text) => /^(\d+)(?:\.(\d+))?/.exec(text)?.slice(1).map(Number) ?? [],
  );
  const [major = 0, minor = 0] = present ?? [];
  const [minMajor = 0, minMinor = 0] = (minimum ?? []).map((part) => (Number.isNaN(part) ? 0 : part));
  if (major > minMajor || (major === minMajor && (minor || 0) >= minMinor)) return;
  throw runlakeError('STORE_TOO_OLD', { store, found, needed: release, variable });
}
