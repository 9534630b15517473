import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { locateRun } from '../runs/locate-run.ts';

/** What an event of a run says of itself. */
export interface EventOfRun {
  readonly tenantId: string;
  readonly runId: string;
  /** When it was accepted, in microseconds since 1970. */
  readonly receivedAtMicros: number;
}

/**
 * When the newest event of a run was accepted, in microseconds since 1970; undefined where the run is not stored.
 * Rows that are not merged yet count each for itself, so the greatest of them is right without FINAL.
 */
export async function lastReceivedAtMicros(
  warehouse: Warehouse,
  { tenantId, runId }: Pick<EventOfRun, 'tenantId' | 'runId'>,
): Promise<number | undefined> {
  const place = await locateRun(warehouse, tenantId, runId);
  if (place === undefined) return undefined;
  const [row] = await warehouse.query<{ events: number; micros: number }>({
    name: 'last-event-of-run',
    sql: `SELECT count() AS events, toUnixTimestamp64Micro(max(last_received_at)) AS micros FROM runs
          WHERE tenant_id = {tenant:UUID} AND session_id = {project:UUID}
            AND start_time = fromUnixTimestamp64Micro({micros:Int64}) AND trace_id = {trace:UUID} AND id = {run:UUID}`,
    params: {
      tenant: tenantId,
      project: place.projectId,
      micros: place.startTimeMicros,
      trace: place.traceId,
      run: runId,
    },
  });
  return row !== undefined && row.events > 0 ? row.micros : undefined;
}
