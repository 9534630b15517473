import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { locateRun } from '../runs/locate-run.ts';

/** Run and acceptance time of a run event. */
export interface EventOfRun {
  readonly tenantId: string;
  readonly runId: string;
  /** Time of acceptance, in microseconds since 1970. */
  readonly receivedAtMicros: number;
}

/**
 * Acceptance time of the newest event of a run, in microseconds since 1970; undefined if the run is not stored.
 * Needs no FINAL: the maximum over unmerged rows equals that over merged ones.
 */
export async function lastReceivedAtMicros(
  clickhouse: ClickHouse,
  { tenantId, runId }: Pick<EventOfRun, 'tenantId' | 'runId'>,
): Promise<number | undefined> {
  const location = await locateRun(clickhouse, tenantId, runId);
  if (location === undefined) return undefined;
  const [row] = await clickhouse.query<{ events: number; micros: number }>({
    name: 'last-event-of-run',
    sql: `SELECT count() AS events, toUnixTimestamp64Micro(max(last_received_at)) AS micros FROM runs
          WHERE tenant_id = {tenant:UUID} AND session_id = {project:UUID}
            AND start_time = fromUnixTimestamp64Micro({micros:Int64}) AND trace_id = {trace:UUID} AND id = {run:UUID}`,
    params: {
      tenant: tenantId,
      project: location.projectId,
      micros: location.startTimeMicros,
      trace: location.traceId,
      run: runId,
    },
  });
  return row !== undefined && row.events > 0 ? row.micros : undefined;
}
