import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { allTimes } from './run-key.ts';
import { placeOfScope, type RunScope } from './run-scope.ts';

/** A run as a part of its trace. */
export interface TraceMember {
  readonly traceId: string;
  readonly runId: string;
  readonly startTimeMicros: number;
  readonly parentRunId: string | undefined;
  readonly dottedOrder: string | undefined;
}

/** Beyond these, children are left out of lists of ids. They are all found by querying the trace. */
const maxMembersOfTrace = 10_000;
export const maxMembers = 100_000;

interface MemberRow {
  readonly trace_id: string;
  readonly id: string;
  readonly micros: number;
  readonly parent: string | null;
  readonly dotted_order: string | null;
}

/** The runs of some traces, by trace, oldest first. */
export async function readTraceMembers(
  warehouse: Warehouse,
  scope: RunScope,
  traceIds: readonly string[],
): Promise<ReadonlyMap<string, readonly TraceMember[]>> {
  const { sql, params, ...place } = placeOfScope(scope, allTimes);
  const rows = await warehouse.query<MemberRow>({
    ...place,
    params: { ...params, traces: traceIds },
    name: 'read-trace-members',
    sql: `SELECT trace_id, id, toUnixTimestamp64Micro(start_time) AS micros,
            coalesce(patch_parent_run_id, post_parent_run_id) AS parent, dotted_order
          FROM runs FINAL
          PREWHERE ${sql} AND trace_id IN {traces:Array(UUID)}
          WHERE isNull(deleted_at)
          ORDER BY start_time, id
          LIMIT ${maxMembersOfTrace} BY trace_id
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
    });
  }
  return members;
}
