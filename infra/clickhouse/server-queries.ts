import { randomBytes } from 'node:crypto';
import type { ClickHouse } from './clickhouse.ts';
import { toLocalTable } from './layout.ts';

/**
 * Checks that the user has the permissions that Runlake needs. Uses each permission on a temporary table.
 *
 * @throws ACCESS_DENIED_BY_STORE, and the other errors of {@link ClickHouse}.
 */
export async function inspectClickHouseRights(clickhouse: ClickHouse): Promise<void> {
  const table = `runlake_inspection_${randomBytes(6).toString('hex')}`;
  const name = 'inspect-rights';
  await clickhouse.command({ name, sql: `CREATE TABLE ${table} (n UInt8) ENGINE = MergeTree ORDER BY n` });
  try {
    await clickhouse.command({ name, sql: `INSERT INTO ${table} VALUES (1)` });
    await clickhouse.command({ name, sql: `ALTER TABLE ${table} ADD COLUMN m UInt8` });
    await clickhouse.command({ name, sql: `ALTER TABLE ${table} DROP PARTITION tuple()` });
    await clickhouse.query({ name, sql: `SELECT n, m FROM ${table}` });
  } finally {
    await clickhouse.command({ name, sql: `DROP TABLE ${table} SYNC` });
  }
}

/** Returns the current time of ClickHouse's clock in milliseconds since 1970. */
export async function readClickHouseClockMs(clickhouse: ClickHouse): Promise<number> {
  const [row] = await clickhouse.query<{ ms: number }>({
    name: 'inspect-clock',
    sql: "SELECT toUnixTimestamp64Milli(now64(3, 'UTC')) AS ms",
  });
  return Number(row?.ms);
}

/**
 * Returns the free space, in percent, of the fullest disk of all servers that respond. Disks of unknown size, such as
 * object stores, are ignored.
 */
export async function readDiskFreePercent({ servers }: ClickHouse): Promise<number> {
  const answers = await Promise.allSettled(
    servers.map((server) =>
      server.query<{ percent: number }>({
        name: 'disk-free',
        sql: 'SELECT min(100 * unreserved_space / total_space) AS percent FROM system.disks WHERE total_space > 0',
      }),
    ),
  );
  const found = answers.filter((answer) => answer.status === 'fulfilled');
  if (found.length === 0) throw (answers[0] as PromiseRejectedResult).reason;
  return Math.min(...found.map(({ value: [row] }) => row?.percent ?? 100));
}

/**
 * Returns the size of each table on disk, in bytes, as the sum over all servers.
 *
 * @throws the errors of {@link ClickHouse} if a server does not respond.
 */
export async function readDiskBytes(clickhouse: ClickHouse): Promise<ReadonlyMap<string, number>> {
  // The replicas of a database with shared storage all list the same parts.
  const layout = await clickhouse.layout();
  const servers = layout.kind === 'replicated' && layout.isShared ? [clickhouse] : clickhouse.servers;
  const answers = await Promise.all(
    servers.map((server) =>
      server.query<{ table: string; bytes: number }>({
        name: 'disk-bytes',
        sql: `SELECT table, sum(bytes_on_disk) AS bytes FROM system.parts
              WHERE database = currentDatabase() AND active GROUP BY table`,
      }),
    ),
  );
  const bytesByTable = new Map<string, number>();
  for (const { table: stored, bytes } of answers.flat()) {
    const table = layout.kind === 'cluster' ? stored.replace(toLocalTable(''), '') : stored;
    bytesByTable.set(table, (bytesByTable.get(table) ?? 0) + bytes);
  }
  return bytesByTable;
}
