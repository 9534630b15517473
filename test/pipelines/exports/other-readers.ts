import { readFile } from 'node:fs/promises';
import { DuckDBInstance } from '@duckdb/node-api';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { ExportFormat } from '../../../pipelines/exports/record.ts';
import { exportFields, type RunColumnType, runParquetColumns } from '../../../schemas/parquet/run-columns.ts';
import type { FreshStores } from '../../engines/stores.ts';
import type { Row } from './exporting.ts';

const typesOf = (version: ExportFormat['version']) =>
  new Map(runParquetColumns.map(({ name, type }) => [name as string, type[version] as RunColumnType]));

/** Returns the rows of files with all columns, in order, as DuckDB reads them. */
export async function readRowsWithDuckdb(paths: readonly string[], version: ExportFormat['version']): Promise<Row[]> {
  const types = typesOf(version);
  const columns = exportFields.map((name) =>
    types.get(name)?.startsWith('TIME') ? `epoch_us(${name}) AS ${name}` : name,
  );
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  try {
    const rows: Row[] = [];
    for (const path of paths) {
      const reader = await connection.runAndReadAll(`SELECT ${columns.join(', ')} FROM read_parquet('${path}')`);
      rows.push(...(reader.getRowObjectsJson() as Row[]));
    }
    const isNumber = (name: string) => types.get(name) === 'BIGINT' || types.get(name)?.startsWith('TIME');
    return rows.map((row) =>
      Object.fromEntries(
        Object.entries(row).map(([name, value]) => [name, isNumber(name) && value !== null ? Number(value) : value]),
      ),
    );
  } finally {
    connection.closeSync();
    instance.closeSync();
  }
}

const clickhouseTypes: Readonly<Record<RunColumnType, string>> = {
  VARCHAR: 'Nullable(String)',
  'VARCHAR[]': 'Array(Nullable(String))',
  BIGINT: 'Nullable(Int64)',
  BOOLEAN: 'Nullable(Bool)',
  TIMESTAMP: "Nullable(DateTime64(6, 'UTC'))",
  'TIMESTAMP WITH TIME ZONE': "Nullable(DateTime64(6, 'UTC'))",
};

/** Returns the rows as ClickHouse reads them. ClickHouse has no nullable arrays: NULL becomes an empty array. */
export async function readRowsWithClickhouse(
  stores: FreshStores,
  paths: readonly string[],
  version: ExportFormat['version'],
): Promise<Row[]> {
  const types = typesOf(version);
  const columns = exportFields.map((name) => `${name} ${clickhouseTypes[types.get(name) as RunColumnType]}`);
  const name = 'test';
  // The table exists on one server only.
  const [server] = stores.clickhouse.servers as readonly [ClickHouse];
  await server.command({
    name,
    sql: `CREATE OR REPLACE TABLE taken (part UInt16, ${columns.join(', ')}) ENGINE = Memory`,
  });
  for (const [part, path] of paths.entries()) await send(stores, path, part, columns);
  const shown = exportFields.map((field) =>
    types.get(field)?.startsWith('TIME') ? `toUnixTimestamp64Micro(${field}) AS ${field}` : field,
  );
  return server.query<Row>({ name, sql: `SELECT ${shown.join(', ')} FROM taken ORDER BY part` });
}

async function send(
  { clickhouseUrl }: FreshStores,
  path: string,
  part: number,
  columns: readonly string[],
): Promise<void> {
  const [first = ''] = clickhouseUrl.split(',');
  const url = new URL(first);
  const query = `INSERT INTO taken SELECT ${part}, * FROM input('${columns.join(', ').replaceAll("'", "\\'")}') FORMAT Parquet`;
  const search = new URLSearchParams({
    query,
    database: url.pathname.slice(1),
    input_format_parquet_preserve_order: '1',
  });
  const answer = await fetch(`${url.origin}/?${search}`, {
    method: 'POST',
    body: await readFile(path),
    headers: { 'X-ClickHouse-User': url.username, 'X-ClickHouse-Key': decodeURIComponent(url.password) },
  });
  if (!answer.ok) throw new Error(await answer.text());
  await answer.arrayBuffer();
}
