import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { hourSeconds } from '../ingest/run-event/times.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { allTimes, isModelCallSql, type TimeWindow } from './run-columns.ts';
import { buildScopeCondition, type RunScope } from './run-scope.ts';

/** A trace id and trace time, as stored with a run. */
interface TraceOfRun {
  readonly traceId: string;
  readonly traceTimeMicros: number;
}

/** Reads when the first event of each trace was accepted. Returns a map from trace id to microseconds since 1970. */
export async function readFirstReceivedTimes(
  clickhouse: ClickHouse,
  tenantId: string,
  traces: readonly TraceOfRun[],
): Promise<ReadonlyMap<string, number>> {
  const hours = new Set(traces.map(({ traceTimeMicros }) => hourSeconds(traceTimeMicros)));
  const rows = await clickhouse.query<{ trace_id: string; micros: number }>({
    name: 'read-first-received',
    shardTables: ['traces'],
    // `pick` is read by position. The minimum over unmerged parts equals the merged value.
    sql: `SELECT trace_id, toUnixTimestamp64Micro(min(tupleElement(pick, 1))) AS micros
          FROM {stored_traces:Identifier}
          WHERE tenant_id = {tenant:UUID} AND hour IN {hours:Array(DateTime('UTC'))} AND trace_id IN {traces:Array(UUID)}
          GROUP BY trace_id`,
    params: { tenant: tenantId, hours: [...hours], traces: [...new Set(traces.map(({ traceId }) => traceId))] },
  });
  return new Map(rows.map((row) => [row.trace_id, row.micros]));
}

/**
 * Reads the time of the first token of any model call of each trace, in microseconds since 1970. Traces without a first
 * token are omitted.
 */
export async function readFirstTokenTimes(
  clickhouse: ClickHouse,
  scope: RunScope,
  traceIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const { sql, params, ...binding } = buildScopeCondition(scope, allTimes);
  const rows = await clickhouse.query<{ trace_id: string; micros: number }>({
    ...binding,
    params: { ...params, traces: traceIds },
    name: 'read-first-tokens',
    shardTables: ['runs'],
    sql: `SELECT trace_id, toUnixTimestamp64Micro(assumeNotNull(min(first_token_time))) AS micros
          FROM {stored_runs:Identifier} FINAL
          PREWHERE ${sql} AND trace_id IN {traces:Array(UUID)}
          WHERE ${liveCondition} AND ${isModelCallSql} AND isNotNull(first_token_time)
          GROUP BY trace_id`,
  });
  return new Map(rows.map((row) => [row.trace_id, row.micros]));
}

/** Key times of the first and the last run of a trace, in microseconds since 1970. */
export interface TraceTimeRange {
  readonly firstMicros: number;
  readonly lastMicros: number;
}

/** Reads the span of each trace. The map is keyed by trace id. */
export async function readTraceTimeRanges(
  clickhouse: ClickHouse,
  tenantId: string,
  traceIds: readonly string[],
): Promise<ReadonlyMap<string, TraceTimeRange>> {
  const rows = await clickhouse.query<{ trace_id: string; first: number; last: number }>({
    name: 'read-trace-spans',
    shardTables: ['trace_locations'],
    sql: `SELECT trace_id, toUnixTimestamp64Micro(min(first_start)) AS first, toUnixTimestamp64Micro(max(last_start)) AS last
          FROM {stored_trace_locations:Identifier}
          WHERE tenant_id = {tenant:UUID} AND trace_id IN {traces:Array(UUID)}
          GROUP BY trace_id`,
    params: { tenant: tenantId, traces: traceIds },
  });
  return new Map(rows.map((row) => [row.trace_id, { firstMicros: row.first, lastMicros: row.last }]));
}

/** Reads the key times from the first to the last run of all given traces. */
async function readTraceTimes(
  clickhouse: ClickHouse,
  tenantId: string,
  traceIds: readonly string[],
): Promise<TimeWindow> {
  let [first, last] = [Number.POSITIVE_INFINITY, 0];
  for (const { firstMicros, lastMicros } of (await readTraceTimeRanges(clickhouse, tenantId, traceIds)).values()) {
    first = Math.min(first, firstMicros);
    last = Math.max(last, lastMicros);
  }
  return { fromMicros: Math.min(first, last), untilMicrosExclusive: last + 1 };
}

export interface TraceMember {
  readonly traceId: string;
  readonly runId: string;
  readonly startTimeMicros: number;
  readonly parentRunId: string | undefined;
  readonly dottedOrder: string | undefined;
  readonly isModelCall?: boolean;
}

/**
 * Maximum number of members that are read for one trace. Further children are omitted from lists of ids, but a query
 * for the runs of the trace returns all of them.
 */
const defaultMaxMembers = 10_000;
const maxMembers = 100_000;

interface MemberRow {
  readonly trace_id: string;
  readonly id: string;
  readonly micros: number;
  readonly parent: string | null;
  readonly dotted_order: string | null;
  readonly is_call: number;
}

interface MemberLimits {
  /** Key times that contain the members. Default: from the first to the last run of the traces, which takes a query. */
  readonly window?: TimeWindow;
  readonly maxPerTrace?: number;
}

/**
 * Reads the members of any number of traces, each trace with its members, oldest first. If one query cannot return all
 * members, the traces are divided over several queries, and only the members of one query are in memory.
 */
export async function* readMembersByTrace(
  clickhouse: ClickHouse,
  scope: RunScope,
  traceIds: readonly string[],
  limits: MemberLimits = {},
): AsyncGenerator<readonly [traceId: string, members: readonly TraceMember[]]> {
  const pending = [traceIds];
  for (let ids = pending.pop(); ids !== undefined; ids = pending.pop()) {
    if (ids.length === 0) continue;
    const members = await readTraceMembers(clickhouse, scope, ids, limits);
    const count = [...members.values()].reduce((sum, list) => sum + list.length, 0);
    if (count < maxMembers || ids.length === 1) yield* members;
    else pending.push(ids.slice(ids.length / 2), ids.slice(0, ids.length / 2));
  }
}

/** Reads the members of the given traces, by trace, oldest first; at most {@link maxMembers}. */
export async function readTraceMembers(
  clickhouse: ClickHouse,
  scope: RunScope,
  traceIds: readonly string[],
  { window, maxPerTrace = defaultMaxMembers }: MemberLimits = {},
): Promise<ReadonlyMap<string, readonly TraceMember[]>> {
  // Without a window, most of the project would be read: a skip index finds single ids, but not hundreds.
  const times = window ?? (await readTraceTimes(clickhouse, scope.tenantId, traceIds));
  const { sql, params, ...binding } = buildScopeCondition(scope, times);
  const rows = await clickhouse.query<MemberRow>({
    ...binding,
    params: { ...params, traces: traceIds },
    name: 'read-trace-members',
    sql: `SELECT trace_id, id, toUnixTimestamp64Micro(start_time) AS micros,
            parent_run_id AS parent, dotted_order, ifNull(${isModelCallSql}, 0) AS is_call
          FROM runs FINAL
          PREWHERE ${sql} AND trace_id IN {traces:Array(UUID)}
          WHERE isNull(deleted_at)
          ORDER BY start_time, id
          LIMIT ${maxPerTrace} BY trace_id
          LIMIT ${maxMembers}`,
  });
  const members = new Map<string, TraceMember[]>(traceIds.map((traceId) => [traceId, []]));
  for (const row of rows) {
    members.get(row.trace_id)?.push({
      traceId: row.trace_id,
      runId: row.id,
      startTimeMicros: row.micros,
      parentRunId: row.parent ?? undefined,
      dottedOrder: row.dotted_order ?? undefined,
      isModelCall: row.is_call === 1,
    });
  }
  return members;
}
