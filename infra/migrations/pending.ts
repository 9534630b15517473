import { runlakeError } from '../errors/runlake-error.ts';
import type { Migration, Store } from './load.ts';

/** A migration that a store has recorded as complete. */
export interface Applied {
  readonly version: number;
  readonly name: string;
  readonly checksum: string;
}

/**
 * Returns the migrations in `known` that are not applied.
 *
 * @throws STORE_NEWER if an applied migration is not in `known`, MIGRATION_CHANGED if an applied one has different contents.
 */
export function pendingMigrations(store: Store, known: readonly Migration[], applied: readonly Applied[]): Migration[] {
  const newest = Math.max(0, ...applied.map(({ version }) => version));
  if (newest > known.length) throw runlakeError('STORE_NEWER', { store, found: newest, known: known.length });
  const byVersion = new Map(applied.map((one) => [one.version, one]));
  return known.filter((migration) => {
    const there = byVersion.get(migration.version);
    if (there !== undefined && there.checksum !== migration.checksum) {
      throw runlakeError('MIGRATION_CHANGED', { store, name: there.name });
    }
    return there === undefined;
  });
}
