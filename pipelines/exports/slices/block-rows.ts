import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { runBytes } from '../../runs/run-columns.ts';
import { type MembersCondition, memberOrder } from './members.ts';

const nearRows = 256;
const maxBlockBytes = 8 * 1024 * 1024;
const maxBlockRows = 1_024;

/**
 * Number of rows that ClickHouse may process as one block when it writes the selected runs. The rows of a block go into
 * one row group of the file, and DuckDB holds a whole group in memory. Blocks must therefore be small if large runs are
 * close together; otherwise small blocks only cost time. Unmerged rows only make the result smaller.
 */
export async function blockRows(
  clickhouse: ClickHouse,
  { sql, params }: MembersCondition,
  signal: AbortSignal,
): Promise<number> {
  const [row] = await clickhouse.query<{ bytes: number }>({
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
