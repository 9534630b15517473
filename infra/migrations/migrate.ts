/**
 * Brings both stores to the schema that this release knows.
 *
 * Invariant: at most one process of all that share the database migrates at any moment, either store. Steps:
 *   1. Both stores are asked what they have; where nothing is missing, that is all.
 *   2. A transaction takes an advisory lock in Postgres and holds it to the end; a process that dies loses it.
 *   3. Under the lock both are asked again: another process may have done the work meanwhile.
 *   4. Postgres first, then ClickHouse, one migration after the other, in connections of their own (so `database` needs two).
 */
import type { Warehouse } from '../clickhouse/client.ts';
import type { Database } from '../postgres/pool.ts';
import type { Logger } from '../telemetry/logger.ts';
import { applyClickHouse, readAppliedClickHouse } from './apply-clickhouse.ts';
import { applyPostgres, readAppliedPostgres } from './apply-postgres.ts';
import { loadMigrations, type Migration } from './load.ts';
import { pendingMigrations } from './pending.ts';

export interface MigrationStores {
  readonly warehouse: Warehouse;
  readonly database: Database;
}

export interface MigrationFolders {
  readonly postgres: string;
  readonly clickhouse: string;
}

interface Pending {
  readonly postgres: readonly Migration[];
  readonly clickhouse: readonly Migration[];
}

/** Any number will do that nothing else in the database uses. */
const lockKey = 7_346_552_001;
/** Longest time of one statement of a migration, and of waiting for another process to end its own. */
const statementTimeoutMs = 3_600_000;

/**
 * Applies what is missing. Costs one short query a store where nothing is.
 *
 * @returns the names of what was applied, such as `postgres/0001_tenants`, in order.
 * @throws STORE_NEWER, MIGRATION_CHANGED, MIGRATION_FAILED; the stores' own faults where they cannot be reached.
 */
export async function migrate(
  stores: MigrationStores & { readonly logger: Logger },
  folders?: MigrationFolders,
): Promise<{ applied: string[] }> {
  const { database, warehouse, logger } = stores;
  if (namesOf(await readPending(stores, folders)).length === 0) return { applied: [] };
  const applied: string[] = [];
  const note = (name: string) => {
    applied.push(name);
    logger.info({ migration: name }, 'migration applied');
  };
  await database.transaction(
    async (lock) => {
      await lock.query('SELECT pg_advisory_xact_lock($1)', [lockKey]);
      const pending = await readPending(stores, folders);
      for (const migration of pending.postgres) {
        await applyPostgres(database, migration, statementTimeoutMs);
        note(`postgres/${migration.name}`);
      }
      for (const migration of pending.clickhouse) {
        await applyClickHouse(warehouse, migration, statementTimeoutMs);
        note(`clickhouse/${migration.name}`);
      }
    },
    { timeoutMs: statementTimeoutMs },
  );
  return { applied };
}

/**
 * Says what {@link migrate} would apply, and changes nothing.
 *
 * @throws STORE_NEWER, MIGRATION_CHANGED; the stores' own faults where they cannot be reached.
 */
export async function checkMigrations(
  stores: MigrationStores,
  folders?: MigrationFolders,
): Promise<{ pending: string[] }> {
  return { pending: namesOf(await readPending(stores, folders)) };
}

async function readPending({ database, warehouse }: MigrationStores, folders?: MigrationFolders): Promise<Pending> {
  const [postgres, clickhouse] = await Promise.all([readAppliedPostgres(database), readAppliedClickHouse(warehouse)]);
  return {
    postgres: pendingMigrations('postgres', loadMigrations('postgres', folders?.postgres), postgres),
    clickhouse: pendingMigrations('clickhouse', loadMigrations('clickhouse', folders?.clickhouse), clickhouse),
  };
}

function namesOf({ postgres, clickhouse }: Pending): string[] {
  return [...postgres.map(({ name }) => `postgres/${name}`), ...clickhouse.map(({ name }) => `clickhouse/${name}`)];
}
