import type { ClickHouse, Query } from '../../infra/clickhouse/clickhouse.ts';
import type { DirtyHour } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';

/**
 * Marks hours dirty (rows of `usage_dirty_hours`): those in which changed traces start, so that the usage roll-up counts
 * them again, and those in which changed runs start, so that their facts are listed again. Call this function after the
 * change in ClickHouse and before the offsets are committed, or in the transaction that commits them. Marking an hour
 * twice only costs a second count; a missing mark makes usage or statistics wrong.
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

/**
 * Marks the hours in which runs start that were changed by other means than an insert of the sink.
 *
 * @param query Returns `tenant_id` and `hour` of the changed runs, also after the change.
 * @throws errors of the stores.
 */
export async function markHoursOfRunsDirty(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Pick<Database, 'query'> },
  query: Omit<Query, 'name'>,
): Promise<void> {
  const hours = await clickhouse.query<DirtyHour>({
    ...query,
    name: 'list-hours-of-runs',
    sql: `SELECT DISTINCT tenant_id AS tenantId, toUnixTimestamp(hour) AS hourSeconds FROM (${query.sql})`,
  });
  await markHoursDirty(database, hours);
}
