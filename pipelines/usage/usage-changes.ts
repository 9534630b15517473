import type { TouchedHour } from '../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';

/** Notes that `pass` counted these hours again. To be called in the transaction of the pass, after the counts are stored. */
export async function noteChanges(transaction: Sql, hours: readonly TouchedHour[], pass: number): Promise<void> {
  await transaction.query(
    `INSERT INTO usage_changes (workspace_id, day, pass)
     SELECT DISTINCT tenant_id, (to_timestamp(hour_seconds) AT TIME ZONE 'UTC')::date, $3::bigint
     FROM unnest($1::uuid[], $2::bigint[]) AS touched (tenant_id, hour_seconds)
     ON CONFLICT (workspace_id, day) DO UPDATE SET pass = excluded.pass`,
    [hours.map(({ tenantId }) => tenantId), hours.map(({ hourSeconds }) => hourSeconds), pass],
  );
}

/**
 * The last finished pass that changed usage of these workspaces on a UTC day that the range touches; 0 where none did. A later
 * pass has the higher number, so as long as this stays the same their usage does. The range in seconds since 1970, half-open.
 */
export async function lastChange(
  database: Pick<Database, 'query'>,
  workspaceIds: readonly string[],
  range: { readonly startSeconds: number; readonly endSeconds: number },
): Promise<number> {
  const [found] = await database.query<{ pass: number }>(
    `SELECT coalesce(max(pass), 0)::float8 AS pass FROM usage_changes
     WHERE workspace_id = ANY ($1::uuid[])
       AND day >= (to_timestamp($2::float8) AT TIME ZONE 'UTC')::date AND day <= (to_timestamp($3::float8 - 1) AT TIME ZONE 'UTC')::date`,
    [workspaceIds, range.startSeconds, range.endSeconds],
    { name: 'last-usage-change' },
  );
  return found?.pass ?? 0;
}
