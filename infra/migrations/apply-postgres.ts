import type { Database } from '../postgres/pool.ts';
import { type Migration, toMigrationError } from './load.ts';
import type { AppliedMigration } from './pending.ts';

export async function readAppliedPostgres(database: Database): Promise<AppliedMigration[]> {
  // A query of a missing table would be an error in the log of Postgres at each first start.
  const [table] = await database.query<{ name: string | null }>(
    `SELECT to_regclass('runlake_migrations')::text AS name`,
  );
  if (!table?.name) return [];
  return database.query<AppliedMigration>('SELECT version, name, checksum FROM runlake_migrations');
}

/**
 * Runs and records one migration in one transaction, so that it is applied completely or not at all.
 *
 * @throws MIGRATION_FAILED; DATABASE_UNAVAILABLE if a retry may succeed.
 */
export async function applyPostgres(database: Database, migration: Migration, timeoutMs: number): Promise<void> {
  const { version, name, sql, checksum } = migration;
  try {
    await database.transaction(
      async (tx) => {
        await tx.execute(recordTableSql);
        // Postgres accepts several statements in one query only if the query has no parameters.
        await tx.execute(sql);
        await tx.execute('INSERT INTO runlake_migrations (version, name, checksum) VALUES ($1, $2, $3)', [
          version,
          name,
          checksum,
        ]);
      },
      { timeoutMs },
    );
  } catch (error) {
    throw toMigrationError('postgres', name, error);
  }
}

const recordTableSql = `CREATE TABLE IF NOT EXISTS runlake_migrations (
  version integer PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)`;
