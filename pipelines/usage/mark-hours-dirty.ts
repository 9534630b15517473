import type { DirtyHour } from '../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';

/**
 * Marks the hours of inserted traces dirty (rows of `usage_dirty_hours`), so that the roll-up counts them again. Call it
 * after the insert into ClickHouse and before the offsets are committed, or in the transaction that commits them.
 * Marking an hour twice only costs a second count; a missing mark leaves usage wrong.
 *
 * Uses one statement for any number of hours. Hours may repeat; an empty list does nothing.
 */
export async function markHoursDirty(database: Pick<Database, 'query'>, hours: readonly DirtyHour[]): Promise<void> {
  if (hours.length === 0) return;
  await database.query(
    `INSERT INTO usage_dirty_hours (tenant_id, hour)
     SELECT DISTINCT tenant_id, to_timestamp(hour_seconds)
     FROM unnest($1::uuid[], $2::bigint[]) AS dirty_hours (tenant_id, hour_seconds)`,
    [hours.map(({ tenantId }) => tenantId), hours.map(({ hourSeconds }) => hourSeconds)],
  );
}

/**
 * Records that roll-up run `rollUp` counted these hours again. Call it in the transaction of the run, after the counts
 * are stored.
 */
export async function recordChanges(transaction: Sql, hours: readonly DirtyHour[], rollUp: number): Promise<void> {
  await transaction.query(
    `INSERT INTO usage_changes (workspace_id, day, roll_up)
     SELECT DISTINCT tenant_id, (to_timestamp(hour_seconds) AT TIME ZONE 'UTC')::date, $3::bigint
     FROM unnest($1::uuid[], $2::bigint[]) AS dirty_hours (tenant_id, hour_seconds)
     ON CONFLICT (workspace_id, day) DO UPDATE SET roll_up = excluded.roll_up`,
    [hours.map(({ tenantId }) => tenantId), hours.map(({ hourSeconds }) => hourSeconds), rollUp],
  );
}

/**
 * Number of the last finished roll-up run that changed usage of these workspaces on a UTC day that overlaps the range;
 * 0 if none did. Later runs have higher numbers, so usage is unchanged as long as this number is. The range is
 * half-open, in seconds since 1970.
 */
export async function lastChange(
  database: Pick<Database, 'query'>,
  workspaceIds: readonly string[],
  range: { readonly startSeconds: number; readonly endSeconds: number },
): Promise<number> {
  const [found] = await database.query<{ roll_up: number }>(
    `SELECT coalesce(max(roll_up), 0)::float8 AS roll_up FROM usage_changes
     WHERE workspace_id = ANY ($1::uuid[])
       AND day >= (to_timestamp($2::float8) AT TIME ZONE 'UTC')::date AND day <= (to_timestamp($3::float8 - 1) AT TIME ZONE 'UTC')::date`,
    [workspaceIds, range.startSeconds, range.endSeconds],
    { name: 'last-usage-change' },
  );
  return found?.roll_up ?? 0;
}
