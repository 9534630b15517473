import { randomBytes } from 'node:crypto';
import type { ClickHouse } from './clickhouse.ts';

/**
 * Checks that the user has the permissions that Runlake needs, by using them on a temporary table.
 * @throws ACCESS_DENIED_BY_STORE, and the other errors of {@link ClickHouse}.
 */
export async function inspectClickHouseRights(clickhouse: ClickHouse): Promise<void> {
  const table = `runlake_inspection_${randomBytes(6).toString('hex')}`;
  const name = 'inspect-rights';
  await clickhouse.command({ name, sql: `CREATE TABLE ${table} (n UInt8) ENGINE = MergeTree ORDER BY n` });
  try {
    await clickhouse.command({ name, sql: `INSERT INTO ${table} VALUES (1)` });
    await clickhouse.command({ name, sql: `ALTER TABLE ${table} ADD COLUMN m UInt8` });
    await clickhouse.query({ name, sql: `SELECT n, m FROM ${table}` });
  } finally {
    await clickhouse.command({ name, sql: `DROP TABLE ${table} SYNC` });
  }
}

/** ClickHouse's current time, in milliseconds since 1970. */
export async function clickhouseClockMs(clickhouse: ClickHouse): Promise<number> {
  const [row] = await clickhouse.query<{ ms: number }>({
    name: 'inspect-clock',
    sql: "SELECT toUnixTimestamp64Milli(now64(3, 'UTC')) AS ms",
  });
  return Number(row?.ms);
}
