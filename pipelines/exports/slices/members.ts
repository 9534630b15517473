/**
 * Which runs belong to an export, as SQL: those whose key lies in its window, that are not deleted, and whose first event came
 * in time.
 *
 * The first event's time is asked of the merged row only: a merge keeps the least of it, so that a run that is patched later
 * stays a member. ClickHouse must not ask it of single rows before it merges them; a setting of every query sees to that.
 */
import type { QueryParameter } from '../../../infra/clickhouse/warehouse.ts';
import type { TimeWindow } from '../../runs/run-key.ts';
import { placeOfScope } from '../../runs/run-scope.ts';
import type { ExportCursor, ExportScope } from '../export-scope.ts';

/** Order of an export; within one project it is that of the table's key. */
export const memberOrder = 'start_time, trace_id, id';

export const isMember = 'first_received_at <= fromUnixTimestamp64Micro({members_until:Int64})';

export interface MemberPlace {
  /** Conditions on the key, joined by AND. They hold or fail alike for each stored row of a run. */
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
}

export interface MemberRange {
  readonly after?: ExportCursor | undefined;
  /** Belongs to the range. */
  readonly last?: ExportCursor | undefined;
  /** Narrower than the scope's. */
  readonly window?: TimeWindow;
}

/** Keys of a scope behind `after` up to `last`: plain bounds on time, which prune, beside the tuples, which do not. */
export function placeOfMembers(scope: ExportScope, { after, last, window = scope.window }: MemberRange): MemberPlace {
  const fromMicros = Math.max(window.fromMicros, after?.startTimeMicros ?? window.fromMicros);
  const untilMicrosExclusive = Math.min(
    window.untilMicrosExclusive,
    last === undefined ? window.untilMicrosExclusive : last.startTimeMicros + 1,
  );
  const { sql, params } = placeOfScope(
    { tenantId: scope.tenantId, projectIds: [scope.projectId] },
    { fromMicros, untilMicrosExclusive },
  );
  const conditions = [sql];
  const values: Record<string, QueryParameter> = { ...params, members_until: scope.membersUntilMicros };
  for (const [name, sign, cursor] of [
    ['after', '>', after],
    ['last', '<=', last],
  ] as const) {
    if (cursor === undefined) continue;
    conditions.push(
      `(start_time, trace_id, id) ${sign} (fromUnixTimestamp64Micro({${name}_time:Int64}), {${name}_trace:UUID}, {${name}_run:UUID})`,
    );
    values[`${name}_time`] = cursor.startTimeMicros;
    values[`${name}_trace`] = cursor.traceId;
    values[`${name}_run`] = cursor.runId;
  }
  return { sql: conditions.join(' AND '), params: values };
}
