import type { Sql } from './database.ts';

/**
 * Inserts a row, for a request that SDKs repeat if they lose the response. With `repeated`, the row exists with all
 * given values, so that the response is that of the first request; with `conflict`, the id or another unique value is
 * taken.
 *
 * @param row Values by column. Columns that are absent get their defaults, and are not compared.
 */
export async function insertOnce(
  tx: Sql,
  table: string,
  row: { readonly id: string } & Readonly<Record<string, unknown>>,
): Promise<'inserted' | 'repeated' | 'conflict'> {
  const { id, ...others } = row;
  const columns = Object.keys(others);
  const values = [id, ...Object.values(others)];
  const parameters = columns.map((_, index) => `$${index + 2}`);
  const inserted = await tx.execute(
    `INSERT INTO ${table} (id, ${columns.join(', ')}) VALUES ($1, ${parameters.join(', ')}) ON CONFLICT DO NOTHING`,
    values,
  );
  if (inserted > 0) return 'inserted';
  const [same] = await tx.query(
    `SELECT FROM ${table} WHERE id = $1 AND (${columns.join(', ')}) IS NOT DISTINCT FROM (${parameters.join(', ')})`,
    values,
  );
  return same ? 'repeated' : 'conflict';
}
