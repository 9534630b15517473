import { runlakeError } from '../errors/runlake-error.ts';
import type { Migration, Store } from './load.ts';

/** A migration that a store has recorded as complete. */
export interface AppliedMigration {
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
}

/**
 * Returns the migrations in `known` that are not applied.
 *
 * @throws MIGRATION_CHANGED if an applied migration differs from the one in `known` with its number; otherwise
 *   STORE_NEWER if an applied migration has a higher number than all in `known`. A development version may have applied
 *   both kinds of migrations. MIGRATION_CHANGED then takes precedence, because no newer release can use that store.
 */
export function findPendingMigrations(
  store: Store,
  known: readonly Migration[],
  applied: readonly AppliedMigration[],
): Migration[] {
  const appliedByVersion = new Map(applied.map((one) => [one.version, one]));
  const pending = known.filter((migration) => {
    const appliedMigration = appliedByVersion.get(migration.version);
    if (appliedMigration !== undefined && appliedMigration.checksum !== migration.checksum) {
      throw runlakeError('MIGRATION_CHANGED', { store, name: appliedMigration.name });
    }
    return appliedMigration === undefined;
  });
  const newest = Math.max(0, ...appliedByVersion.keys());
  if (newest > known.length) throw runlakeError('STORE_NEWER', { store, found: newest, known: known.length });
  return pending;
}
