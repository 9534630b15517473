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
