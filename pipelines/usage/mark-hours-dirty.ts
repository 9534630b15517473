import type { DirtyHour } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';

/**
 * Marks the hours of inserted traces dirty (rows of `usage_dirty_hours`), so that the roll-up counts them again. Call
 * this function after the insert into ClickHouse and before the offsets are committed, or in the transaction that
 * commits them. Marking an hour twice only costs a second count; a missing mark makes usage wrong.
 *
 * Uses one statement for any number of hours. Hours may be repeated; an empty list does nothing.
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
