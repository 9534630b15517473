/**
 * Migrates Postgres and ClickHouse to the schema of this release.
 *
 * Invariant: of all processes that share the database, at most one migrates at any time. Steps:
 *   1. Read the applied migrations of both stores, and check that the tables of ClickHouse were made for the configured
 *      cluster; if no migration is missing, stop.
 *   2. In a transaction, take an advisory lock in Postgres and hold it to the end; a process that dies loses it.
 *   3. Under the lock, read both again, because another process may have migrated meanwhile.
 *   4. Apply the Postgres migrations, then those of ClickHouse, one by one, each on all servers. The Postgres
 *      migrations do not use the connection that holds the lock, so `database` needs two connections.
 *
 * Each ClickHouse server of a cluster has its own records, so the migrations of a server that was added or did not
 * respond are applied later.
 */
import type { ClickHouse } from '../clickhouse/client.ts';
import type { Database } from '../postgres/pool.ts';
import type { Logger } from '../telemetry/logger.ts';
import { applyPostgres, readAppliedPostgres } from './apply-postgres.ts';
import { applyToServers, checkLayout, type PendingClickHouse, readPendingClickHouse } from './clickhouse-servers.ts';
import { loadMigrations, type Migration } from './load.ts';
import { findPendingMigrations } from './pending.ts';

export interface MigrationStores {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

export interface MigrationFolders {
  readonly postgres: string;
  readonly clickhouse: string;
}

interface PendingMigrations {
  readonly postgres: readonly Migration[];
  readonly clickhouse: PendingClickHouse;
}

/** An arbitrary number that nothing else in the database uses as a lock key. */
const lockKey = 7_346_552_001;
/** Timeout of each statement of a migration, and of waiting for the migrations of another process. */
const statementTimeoutMs = 3_600_000;

/**
 * Applies the missing migrations. If none is missing, this takes only a few short queries.
 *
 * @returns the names of the applied migrations in order, for example `postgres/0001_tenants`.
 * @throws STORE_NEWER, MIGRATION_CHANGED, MIGRATION_FAILED; PART_UNUSABLE if the tables were made for another cluster; the
 *   errors of the stores if they cannot be reached.
 */
export async function migrate(
  stores: MigrationStores & { readonly logger: Logger },
  folders?: MigrationFolders,
): Promise<{ applied: string[] }> {
  const { database, clickhouse, logger } = stores;
  if (listNames(await readPending(stores, folders)).length === 0) return { applied: [] };
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
      await applyToServers(pending.clickhouse, clickhouse, statementTimeoutMs, ({ name }) =>
        note(`clickhouse/${name}`),
      );
    },
    { timeoutMs: statementTimeoutMs },
  );
  return { applied };
}

/**
 * Returns the migrations that {@link migrate} would apply, without applying them.
 *
 * @throws STORE_NEWER, MIGRATION_CHANGED, PART_UNUSABLE; the errors of the stores if they cannot be reached.
 */
export async function checkMigrations(
  stores: MigrationStores,
  folders?: MigrationFolders,
): Promise<{ pending: string[] }> {
  return { pending: listNames(await readPending(stores, folders)) };
}

async function readPending(
  { database, clickhouse }: MigrationStores,
  folders?: MigrationFolders,
): Promise<PendingMigrations> {
  const [postgres, servers] = await Promise.all([
    readAppliedPostgres(database),
    readPendingClickHouse(clickhouse, loadMigrations('clickhouse', folders?.clickhouse)),
  ]);
  await checkLayout(servers, clickhouse);
  return {
    postgres: findPendingMigrations('postgres', loadMigrations('postgres', folders?.postgres), postgres),
    clickhouse: servers,
  };
}

function listNames({ postgres, clickhouse }: PendingMigrations): string[] {
  return [
    ...postgres.map(({ name }) => `postgres/${name}`),
    ...clickhouse.migrations.map(({ name }) => `clickhouse/${name}`),
  ];
}
