import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { localTable } from '../../infra/clickhouse/delete-rows.ts';

/**
 * Runs a statement that a Distributed table does not support (OPTIMIZE, TRUNCATE, ALTER) on the table that stores the rows; in a
 * cluster, on that of every shard.
 */
export async function onStoredTable(
  clickhouse: ClickHouse,
  table: string,
  statement: (stored: string) => string,
): Promise<void> {
  const isCluster = (await clickhouse.layout()).kind === 'cluster';
  const servers = isCluster ? clickhouse.servers : [clickhouse];
  const sql = statement(isCluster ? localTable(table) : table);
  await Promise.all(servers.map((server) => server.command({ name: 'test', sql })));
}

/** SQL: whether a row of system.tables is a table that Runlake reads and writes, not the part of it on one shard. */
export const isLogicalTable = `(engine LIKE '%MergeTree' AND NOT endsWith(name, '${localTable('')}') OR engine = 'Distributed')`;

/** Size of tables on the disks of all servers. */
export async function storedBytes({ servers }: ClickHouse, tables: readonly string[]): Promise<number> {
  const names = tables.flatMap((table) => [table, localTable(table)]).map((name) => `'${name}'`);
  const sql = `SELECT sum(bytes_on_disk) AS bytes FROM system.parts
    WHERE database = currentDatabase() AND active AND table IN (${names})`;
  const rows = await Promise.all(servers.map((server) => server.query<{ bytes: number }>({ name: 'test', sql })));
  return rows.reduce((sum, [row]) => sum + (row?.bytes ?? 0), 0);
}
