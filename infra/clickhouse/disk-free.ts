import type { ClickHouse } from './clickhouse.ts';

/** Free space of ClickHouse's fullest disk, in percent. Disks of unknown size, such as object stores, do not count. */
export async function diskFreePercent(clickhouse: ClickHouse): Promise<number> {
  const [row] = await clickhouse.query<{ percent: number }>({
    name: 'disk-free',
    sql: 'SELECT min(100 * unreserved_space / total_space) AS percent FROM system.disks WHERE total_space > 0',
  });
  return row?.percent ?? 100;
}
