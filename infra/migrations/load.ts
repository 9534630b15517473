import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isRunlakeError, runlakeError } from '../errors/runlake-error.ts';

export type Store = 'postgres' | 'clickhouse';

export interface Migration {
  /** Number of the migration. Numbers start at 1 and have no gaps. */
  readonly version: number;
  /** Name of the migration, for example `0001_runs`. */
  readonly name: string;
  readonly sql: string;
  /** SHA-256 of `sql`, in hex. */
  readonly checksum: string;
}

/** The folder `schemas/`. It is next to `infra/` both in the source tree and in `dist/`. */
const schemasFolder = fileURLToPath(new URL('../../schemas/', import.meta.url));

const fileNamePattern = /^((\d{4})_[a-z0-9_]+)\.sql$/;

/**
 * Reads the migrations of `store` in order: the files `NNNN_name.sql` of `schemas/<store>/`.
 *
 * @throws MIGRATION_FAILED if a number is missing or duplicated, or a file name does not match.
 */
export function loadMigrations(store: Store, folder = join(schemasFolder, store)): Migration[] {
  const files = readdirSync(folder).sort();
  return files.map((file, index) => {
    const [, name, number] = fileNamePattern.exec(file) ?? [];
    if (name === undefined)
      throw runlakeError('MIGRATION_FAILED', { store, name: file, reason: 'its file name must be NNNN_name.sql' });
    const version = Number(number);
    if (version !== index + 1) {
      const reason = version <= index ? 'its number is a duplicate' : `migration number ${index + 1} is missing`;
      throw runlakeError('MIGRATION_FAILED', { store, name, reason });
    }
    // Line endings are normalised, because a checkout may change them.
    const sql = readFileSync(join(folder, file), 'utf8').replaceAll('\r\n', '\n');
    return { version, name, sql, checksum: computeChecksum(sql) };
  });
}

export function computeChecksum(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/**
 * Converts the error of a migration to MIGRATION_FAILED. Includes the server's message, because it concerns only
 * Runlake's own SQL and no customer data. Returns other errors unchanged.
 */
export function toMigrationError(store: Store, name: string, error: unknown): unknown {
  if (!isRunlakeError(error)) return error;
  if (error.code !== 'CLICKHOUSE_QUERY_FAILED' && error.code !== 'DATABASE_QUERY_FAILED') return error;
  const reason = error.cause instanceof Error ? error.cause.message : error.message;
  return runlakeError('MIGRATION_FAILED', { store, name, reason }, { cause: error });
}
