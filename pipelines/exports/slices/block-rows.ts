import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import { runBytes } from '../../runs/run-columns.ts';
import { type MemberPlace, memberOrder } from './members.ts';

const nearRows = 256;
const maxBlockBytes = 8 * 1024 * 1024;
const maxBlockRows = 1_024;

/**
 * How many rows ClickHouse may handle as one block when it writes the runs of `place`. Rows of a block come into one row group
 * of the file, and a group is what DuckDB holds at once: where large runs lie close together, blocks have to be small. Else
 * they need not be, and small ones are slow. Rows that are not merged yet only make it smaller.
 */
export async function blockRows(
  warehouse: Warehouse,
  { sql, params }: MemberPlace,
  signal: AbortSignal,
): Promise<number> {
  const [row] = await warehouse.query<{ bytes: number }>({
    name: 'size-blocks',
    sql: `SELECT max(near) AS bytes FROM (
            SELECT sum(bytes) OVER (ORDER BY ${memberOrder} ROWS BETWEEN ${nearRows - 1} PRECEDING AND CURRENT ROW) AS near
            FROM (SELECT ${memberOrder}, ${runBytes} AS bytes FROM runs WHERE ${sql}))`,
    params,
    signal,
  });
  const rows = Math.floor((nearRows * maxBlockBytes) / Math.max(row?.bytes ?? 0, 1));
  return Math.max(1, Math.min(maxBlockRows, rows));
}
