import type { DuckDBConnection } from '@duckdb/node-api';
import type { ParquetFacts } from './encode-request.ts';
import { footerSql } from './encode-sql.ts';

/** Reads the footer of the Parquet file at `path`. @throws DuckDB's error if it is not a Parquet file. */
export async function readFooter(connection: DuckDBConnection, path: string): Promise<ParquetFacts> {
  const sql = footerSql(path);
  const rowsOf = async (statement: string) => (await connection.runAndReadAll(statement)).getRowObjectsJson();
  const columns = await rowsOf(sql.columns);
  const groups = await rowsOf(sql.groups);
  const chunks = await rowsOf(sql.chunks);
  return {
    rows: groups.reduce((rows, group) => rows + Number(group.rows), 0),
    columns: columns.map((column) => ({ name: String(column.column_name), type: String(column.column_type) })),
    groups: groups.map(({ rows, plain, bytes }) => ({
      rows: Number(rows),
      plainBytes: Number(plain),
      bytes: Number(bytes),
    })),
    compressions: [...new Set(chunks.flatMap(({ compressions }) => compressions as string[]))].sort(),
    nulls: Object.fromEntries(
      chunks.filter(({ nulls }) => nulls !== null).map(({ path: column, nulls }) => [String(column), Number(nulls)]),
    ),
  };
}
