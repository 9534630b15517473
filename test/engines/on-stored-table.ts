import type { ClickHouse, Command } from '../../infra/clickhouse/clickhouse.ts';
import { toLocalTable } from '../../infra/clickhouse/layout.ts';
import { buildClusterStatements } from '../../infra/migrations/cluster-statements.ts';

/**
 * Runs a statement that a Distributed table does not support (OPTIMIZE, TRUNCATE, ALTER) on the table that stores the
 * rows; in a cluster, on that table on every shard.
 */
export async function runOnStoredTable(
  clickhouse: ClickHouse,
  table: string,
  statement: (stored: string) => string,
): Promise<void> {
  const isCluster = (await clickhouse.layout()).kind === 'cluster';
  await runOnEveryServer(clickhouse, statement(isCluster ? toLocalTable(table) : table));
}

/** Runs a statement on every server, for example DDL of a view, or of the Distributed tables of a cluster. */
export async function runOnEveryServer({ servers }: ClickHouse, sql: string): Promise<void> {
  await Promise.all(servers.map((server) => server.command({ name: 'test', sql })));
}

/** Creates a table as a migration does; `sql` may have the clause SHARD BY. */
export async function createTable(clickhouse: ClickHouse, sql: string): Promise<void> {
  const layout = await clickhouse.layout();
  const shards = layout.kind === 'cluster' ? layout.shards : 0;
  for (const statement of buildClusterStatements(sql, layout, shards)) await runOnEveryServer(clickhouse, statement);
}

/** Adds columns; `columns` is the part of ALTER TABLE after the name of the table. */
export async function addColumns(clickhouse: ClickHouse, table: string, columns: string): Promise<void> {
  const isCluster = (await clickhouse.layout()).kind === 'cluster';
  for (const each of isCluster ? [toLocalTable(table), table] : [table]) {
    await runOnEveryServer(clickhouse, `ALTER TABLE ${each} ${columns}`);
  }
}

/** Reads from every server, for example a table of `system`. */
export async function queryEveryServer<Row>({ servers }: ClickHouse, sql: string): Promise<Row[]> {
  return (await Promise.all(servers.map((server) => server.query<Row>({ name: 'test', sql })))).flat();
}

/**
 * SQL condition: whether a row of system.tables is a table that Runlake reads and writes, and not its part on one
 * shard.
 */
export const isLogicalTable = `(engine LIKE '%MergeTree' AND NOT endsWith(name, '${toLocalTable('')}') OR engine = 'Distributed')`;

/** Returns the tables that store data of workspaces, and their columns with the workspace or deployment and the expiry. */
export function listTenantTables(clickhouse: ClickHouse): Promise<{ table: string; keys: string[] }[]> {
  return clickhouse.query({
    name: 'test',
    sql: `SELECT table, groupArray(name) AS keys FROM system.columns
          WHERE database = currentDatabase() AND name IN ('tenant_id', 'organization_id', 'expires_at')
            AND table IN (SELECT name FROM system.tables WHERE database = currentDatabase() AND ${isLogicalTable})
          GROUP BY table HAVING keys != ['expires_at']`,
  });
}

/** Returns the size of tables on the disks of all servers. */
export async function storedBytes(clickhouse: ClickHouse, tables: readonly string[]): Promise<number> {
  const names = tables.flatMap((table) => [table, toLocalTable(table)]).map((name) => `'${name}'`);
  const sql = `SELECT sum(bytes_on_disk) AS bytes FROM system.parts
    WHERE database = currentDatabase() AND active AND table IN (${names})`;
  const rows = await queryEveryServer<{ bytes: number }>(clickhouse, sql);
  return rows.reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Returns a ClickHouse client that calls `act` instead of each command. If a command is sent to every shard, `act`
 * replaces only the first one.
 */
export function wrapCommands(
  clickhouse: ClickHouse,
  act: (command: Command, run: () => Promise<void>) => Promise<void>,
): ClickHouse {
  const wrap = (server: ClickHouse): ClickHouse => ({
    ...server,
    command: (command) => act(command, () => server.command(command)),
  });
  return {
    ...wrap(clickhouse),
    servers: clickhouse.servers.map((server, index) => (index === 0 ? wrap(server) : server)),
  };
}
