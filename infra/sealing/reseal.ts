import type { Sql } from '../postgres/database.ts';
import type { Logger } from '../telemetry/logger.ts';
import type { Sealer } from './sealer.ts';

/** A column of Postgres that contains sealed texts. */
export interface SealedColumn {
  readonly table: string;
  readonly column: string;
  readonly keyColumns: readonly string[];
  /** Returns what identifies a row for its {@link Sealer}, from the values of the key columns. */
  readonly identify: (...key: string[]) => string;
}

const pageRows = 1_000;

/**
 * Re-encrypts the secrets of `columns` that were encrypted with a former key, so that the former key can be retired.
 * Secrets that cannot be decrypted stay unchanged, and a warning is logged.
 *
 * @returns the number of secrets that were re-encrypted. @throws errors of the database.
 */
export async function resealColumns(
  database: Sql,
  columns: readonly SealedColumn[],
  { sealer, logger }: { readonly sealer: Sealer; readonly logger: Logger },
): Promise<number> {
  let resealed = 0;
  for (const { table, column, keyColumns, identify } of columns) {
    const key = `(${keyColumns.join(', ')})`;
    const list = (first: number) => `(${keyColumns.map((_, index) => `$${first + index}`).join(', ')})`;
    // A concurrent request may have replaced the secret meanwhile.
    const updateSql = `UPDATE ${table} SET ${column} = $1 WHERE ${column} = $2 AND ${key} = ${list(3)}`;
    for (let after: readonly string[] = []; ; ) {
      const rows = await database.query<{ readonly key: string[]; readonly sealed: string }>(
        `SELECT ARRAY[${keyColumns.map((name) => `${name}::text`).join(', ')}] AS key, ${column} AS sealed FROM ${table}
         WHERE ${column} IS NOT NULL ${after.length === 0 ? '' : `AND ${key} > ${list(1)}`}
         ORDER BY ${keyColumns.join(', ')} LIMIT ${pageRows}`,
        after,
      );
      for (const row of rows) {
        const owner = identify(...row.key);
        let opened: ReturnType<Sealer['open']>;
        try {
          opened = sealer.open(row.sealed, owner);
        } catch (err) {
          logger.warn({ err, row: owner }, 'cannot seal a secret again');
          continue;
        }
        if (opened.isUnderFormerKey)
          resealed += await database.execute(updateSql, [sealer.seal(opened.text, owner), row.sealed, ...row.key]);
      }
      const last = rows.at(-1);
      if (last === undefined || rows.length < pageRows) break;
      after = last.key;
    }
  }
  return resealed;
}

/**
 * Counts the secrets of `columns` that were encrypted with a key that the sealer does not have.
 *
 * @throws errors of the database.
 */
export async function countUnreadable(
  database: Pick<Sql, 'query'>,
  columns: readonly SealedColumn[],
  { keyIds }: Sealer,
): Promise<number> {
  let count = 0;
  for (const { table, column } of columns) {
    const [row] = await database.query<{ readonly count: number }>(
      `SELECT count(*)::int AS count FROM ${table} WHERE split_part(${column}, '.', 2) <> ALL ($1::text[])`,
      [keyIds],
    );
    count += row?.count ?? 0;
  }
  return count;
}
