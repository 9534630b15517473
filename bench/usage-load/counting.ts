import type { Grouping } from '../../pipelines/usage/report-query.ts';

/**
 * Reports without a roll-up, by counting distinct traces, with the parameters and result columns of the product's own
 * query: from `runs`, as a product without `traces` would, and from `traces`, which already has one row a trace.
 */
export const counting: Readonly<Record<'runs' | 'traces', (groupBy: Grouping) => string>> = {
  runs: (groupBy) =>
    inShape(`SELECT intDiv(toUnixTimestamp(trace_time) - {origin:UInt32}, {stride:UInt32}) AS bucket, ${columnOfRuns[groupBy]} AS id,
      uniqExact(trace_id) AS counted
    FROM runs
    WHERE tenant_id = {workspace:UUID}
      AND trace_time >= toDateTime({start:UInt32}, 'UTC') AND trace_time < toDateTime({end:UInt32}, 'UTC')
      AND start_time >= toDateTime({start:UInt32}, 'UTC') AND start_time < toDateTime({end:UInt32} + 86400, 'UTC')
    GROUP BY bucket, id`),
  traces: (groupBy) =>
    inShape(`SELECT intDiv(toUnixTimestamp(hour) - {origin:UInt32}, {stride:UInt32}) AS bucket, ${columnOfTraces[groupBy]} AS id,
      uniqExact(trace_id) AS counted
    FROM traces FINAL
    WHERE tenant_id = {workspace:UUID}
      AND hour >= toDateTime({start:UInt32}, 'UTC') AND hour < toDateTime({end:UInt32}, 'UTC')
    GROUP BY bucket, id`),
};

const columnOfRuns = { workspace: 'tenant_id', project: 'session_id', user: 'user_id', api_key: 'key_id' } as const;
const columnOfTraces = { workspace: 'tenant_id', project: 'pick.3', user: 'pick.4', api_key: 'pick.5' } as const;

function inShape(sql: string): string {
  return `SELECT toUInt32(bucket) AS bucket, groupArray(id) AS ids, groupArray(counted) AS traces FROM (${sql}) GROUP BY bucket`;
}
