import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { fault } from '../errors/runlake-error.ts';

export type Store = 'postgres' | 'clickhouse';

export interface Migration {
  /** From 1, without gaps. */
  readonly version: number;
  /** Such as `0001_runs`. */
  readonly name: string;
  readonly sql: string;
  /** SHA-256 of `sql`, in hex. */
  readonly checksum: string;
}

/** `schemas/` beside `infra/`, in the source tree as in `dist/`. */
const schemasFolder = fileURLToPath(new URL('../../schemas/', import.meta.url));

const fileName = /^((\d{4})_[a-z0-9_]+)\.sql$/;

/**
 * The migrations of `store` in their order: the files `NNNN_name.sql` of `schemas/<store>/`.
 *
 * @throws MIGRATION_FAILED where a number is missing or given twice, or a file has another kind of name.
 */
export function loadMigrations(store: Store, folder = join(schemasFolder, store)): Migration[] {
  const files = readdirSync(folder).sort();
  return files.map((file, index) => {
    const [, name, number] = fileName.exec(file) ?? [];
    if (name === undefined)
      throw fault('MIGRATION_FAILED', { store, name: file, reason: 'its name is not NNNN_name.sql' });
    const version = Number(number);
    if (version !== index + 1) {
      const reason = version <= index ? 'its number is given twice' : `number ${index + 1} is missing before it`;
      throw fault('MIGRATION_FAILED', { store, name, reason });
    }
    // Line ends do not count: a checkout may have changed them.
    const sql = readFileSync(join(folder, file), 'utf8').replaceAll('\r\n', '\n');
    return { version, name, sql, checksum: checksumOf(sql) };
  });
}

export function checksumOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
