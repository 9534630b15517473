import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';

/** A trace id and trace time, as stored with a run. */
export interface TraceOfRun {
  readonly traceId: string;
  readonly traceTimeMicros: number;
}

const hourMicros = 3_600_000_000;

/** Time at which the first event of each trace was accepted, in microseconds since 1970, by trace. */
export async function readFirstReceived(
  clickhouse: ClickHouse,
  tenantId: string,
  traces: readonly TraceOfRun[],
): Promise<ReadonlyMap<string, number>> {
  const hours = new Set(traces.map(({ traceTimeMicros }) => Math.floor(traceTimeMicros / hourMicros) * 3_600));
  const rows = await clickhouse.query<{ trace_id: string; micros: number }>({
    name: 'read-first-received',
    // `pick` is read by position. The minimum over unmerged parts equals the merged value.
    sql: `SELECT trace_id, toUnixTimestamp64Micro(min(tupleElement(pick, 1))) AS micros
          FROM traces
          WHERE tenant_id = {tenant:UUID} AND hour IN {hours:Array(DateTime('UTC'))} AND trace_id IN {traces:Array(UUID)}
          GROUP BY trace_id`,
    params: { tenant: tenantId, hours: [...hours], traces: [...new Set(traces.map(({ traceId }) => traceId))] },
  });
  return new Map(rows.map((row) => [row.trace_id, row.micros]));
}

/** Key times of the first and the last run of a trace, in microseconds since 1970. */
export interface TraceSpan {
  readonly firstMicros: number;
  readonly lastMicros: number;
}

/** Reads the span of each trace, by trace. */
export async function readTraceSpans(
  clickhouse: ClickHouse,
  tenantId: string,
  traceIds: readonly string[],
): Promise<ReadonlyMap<string, TraceSpan>> {
  const rows = await clickhouse.query<{ trace_id: string; first: number; last: number }>({
    name: 'read-trace-spans',
    sql: `SELECT trace_id, toUnixTimestamp64Micro(min(first_start)) AS first, toUnixTimestamp64Micro(max(last_start)) AS last
          FROM trace_spans
          WHERE tenant_id = {tenant:UUID} AND trace_id IN {traces:Array(UUID)}
          GROUP BY trace_id`,
    params: { tenant: tenantId, traces: traceIds },
  });
  return new Map(rows.map((row) => [row.trace_id, { firstMicros: row.first, lastMicros: row.last }]));
}
