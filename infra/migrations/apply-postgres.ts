import { isRunlakeError } from '../errors/runlake-error.ts';
import { sqlStateOf } from '../postgres/faults.ts';
import type { Database } from '../postgres/pool.ts';
import { migrationFailure } from './failure.ts';
import type { Migration } from './load.ts';
import type { Applied } from './pending.ts';

/** The migrations that Postgres says are complete. One statement. */
export async function readAppliedPostgres(database: Database): Promise<Applied[]> {
  try {
    return await database.query<Applied>('SELECT version, name, checksum FROM runlake_migrations');
  } catch (error) {
    if (isRunlakeError(error) && sqlStateOf(error) === '42P01') return [];
    throw error;
  }
}

/**
 * Runs one migration and records it, in one transaction: it is there whole or not at all.
 *
 * @throws MIGRATION_FAILED; DATABASE_UNAVAILABLE where it may pass later.
 */
export async function applyPostgres(database: Database, migration: Migration, timeoutMs: number): Promise<void> {
  const { version, name, sql, checksum } = migration;
  try {
    await database.transaction(
      async (tx) => {
        await tx.execute(recordTable);
        // Without parameters Postgres takes a text of several statements.
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
    throw migrationFailure('postgres', name, error);
  }
}

const recordTable = `CREATE TABLE IF NOT EXISTS runlake_migrations (
  version integer PRIMARY KEY,
  name text NOT NULL,
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT now()
)`;
