import type { Warehouse } from './warehouse.ts';

/** Free space of ClickHouse's fullest disk, in percent. Disks of unknown size, such as object stores, do not count. */
export async function diskFreePercent(warehouse: Warehouse): Promise<number> {
  const [row] = await warehouse.query<{ percent: number }>({
    name: 'disk-free',
    sql: 'SELECT min(100 * unreserved_space / total_space) AS percent FROM system.disks WHERE total_space > 0',
  });
  return row?.percent ?? 100;
}
