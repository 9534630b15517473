import type { Sql } from '../../../infra/postgres/database.ts';
import { until } from '../until.ts';

/** Returns a row for each statement like `pattern` that waits for a lock. */
export const listLockWaits = (database: Pick<Sql, 'query'>, pattern = '%') =>
  database.query(
    `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1`,
    [pattern],
  );

/**
 * Waits until statements like `pattern` wait for a lock. `database` must not be a transaction: it would see the activity as
 * it was at its first query.
 */
export const untilLockWait = (database: Pick<Sql, 'query'>, pattern = '%', count = 1) =>
  until(`statements like ${pattern} to wait`, async () => (await listLockWaits(database, pattern)).length >= count);
