import type { TouchedHour } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';

/**
 * Notes that traces of these hours were inserted, so that the roll-up counts the hours again. Call it after the insert
 * into ClickHouse and before the offsets are committed, or in the transaction that commits them: a note that is written
 * twice costs a second count and nothing else, one that is missing leaves usage wrong.
 *
 * One statement, whatever the number of hours; they may repeat, and none does nothing.
 */
export async function noteHours(database: Pick<Database, 'query'>, hours: readonly TouchedHour[]): Promise<void> {
  if (hours.length === 0) return;
  await database.query(
    `INSERT INTO usage_notes (tenant_id, hour)
     SELECT DISTINCT tenant_id, to_timestamp(hour_seconds)
     FROM unnest($1::uuid[], $2::bigint[]) AS touched (tenant_id, hour_seconds)`,
    [hours.map(({ tenantId }) => tenantId), hours.map(({ hourSeconds }) => hourSeconds)],
  );
}
