import type { Sql } from './database.ts';

/** Reads the current time, in milliseconds since 1970. */
export type ReadClock = (sql: Sql) => Promise<number>;

/**
 * Reads the clock of Postgres, so that all processes agree on what is due even if their own clocks differ. Rounds up to whole
 * milliseconds, so that a row with exactly this time is due.
 */
export const readDatabaseClock: ReadClock = async (sql) => {
  const [row] = await sql.query<{ ms: number }>(
    'SELECT ceil(extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
    [],
    { name: 'database_clock' },
  );
  return (row as { ms: number }).ms;
};
