/**
 * SQL conditions for the members of an export. A run is a member if all of these conditions hold: its key is in the
 * window of the export; it is not deleted; it had not expired at `members_until`; its first event was received no later
 * than `members_until`; it matches the filter of the export. Rows of expired runs are kept for another week, so a run
 * that expires during the export is still exported.
 *
 * The time of the first event is compared only on merged rows. Merging keeps the minimum, so a run that is patched
 * later stays a member. Every query sets `optimize_move_to_prewhere_if_final = 0`, which prevents ClickHouse from
 * applying the condition to single rows before it merges them.
 */
import type { ClickHouse, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { buildLiveCondition } from '../retention/lifetimes.ts';
import { buildFilterClauses, type FilterClauses } from '../runs/filter-clauses.ts';
import type { RunKey, TimeWindow } from '../runs/run-columns.ts';
import { buildScopeCondition } from '../runs/run-scope.ts';
import type { ExportScope } from './record.ts';

/** Sort order of the rows in an export. Within one project it equals the order of the table's sorting key. */
export const memberOrder = 'start_time, trace_id, id';

/** SQL condition that a run is not deleted and had not expired at `members_until`. */
export const exportableCondition = buildLiveCondition('members_until');

export const memberCondition = 'first_received_at <= fromUnixTimestamp64Micro({members_until:Int64})';

/**
 * Position of a run in the sort order of an export: key time, then trace id, then run id, compared in the same way as
 * in ClickHouse.
 */
export type ExportCursor = Omit<RunKey, 'projectId'>;

export interface MembersCondition {
  /** Conditions on the key, joined by AND. Their result is the same for all stored rows of a run. */
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
}

export interface MemberRange {
  readonly after?: ExportCursor | undefined;
  /** Inclusive end of the range. */
  readonly last?: ExportCursor | undefined;
  /** Time window of the range. It must lie within the window of the scope. */
  readonly window?: TimeWindow;
}

/**
 * Builds the condition on the keys of a scope that follow `after`, up to and including `last`. The separate bounds on
 * the time enable ClickHouse to prune parts, which it cannot do with the tuple comparisons alone.
 */
export function buildMembersCondition(
  scope: ExportScope,
  { after, last, window = scope.window }: MemberRange,
): MembersCondition {
  const fromMicros = Math.max(window.fromMicros, after?.startTimeMicros ?? window.fromMicros);
  const untilMicrosExclusive = Math.min(
    window.untilMicrosExclusive,
    last === undefined ? window.untilMicrosExclusive : last.startTimeMicros + 1,
  );
  const { sql, params } = buildScopeCondition(
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

/**
 * Builds the clauses for the filter of an export. The filter is applied to the values that a run has when its chunk is
 * read, which are those that the file contains; see decision 0050. A run that is patched before may begin or cease to
 * match. Runs of its trace and feedback are taken into account even if they expire after `members_until`.
 */
export function buildMembersFilter(scope: ExportScope, { sql }: MembersCondition): FilterClauses {
  const runScope = { tenantId: scope.tenantId, projectIds: [scope.projectId] };
  return buildFilterClauses(scope.conditions, runScope, sql, exportableCondition);
}

interface MemberCount {
  /** Number of members of the scope. */
  readonly members: number;
  /** Number of runs in the window of the scope that were received too late to be members. */
  readonly late: number;
}

const hourMicros = 3_600_000_000;
/** Timeout for counting. Counting may be slow: one day may contain a hundred million runs, and a filter reads their texts. */
const countTimeoutMs = 3_600_000;

/**
 * Counts the runs in the window of a scope, excluding deleted and expired runs. A filter that reads all runs of the traces in
 * the window takes memory for them, so a window with more than `maxFilteredRows` stored rows is then counted hour by hour.
 *
 * @throws errors of ClickHouse, or the reason of `signal`.
 */
export async function countMembers(
  clickhouse: ClickHouse,
  scope: ExportScope,
  signal?: AbortSignal,
  maxFilteredRows = 2_000_000,
): Promise<MemberCount> {
  const { fromMicros, untilMicrosExclusive: until } = scope.window;
  const { usesTraces } = buildMembersFilter(scope, buildMembersCondition(scope, {}));
  const rows = usesTraces ? await countStoredRows(clickhouse, scope, signal) : 0;
  const stepMicros = rows > maxFilteredRows ? hourMicros : until - fromMicros;
  const deadlineMs = performance.now() + countTimeoutMs;
  let [members, late] = [0, 0];
  for (let from = fromMicros; from < until; from += stepMicros) {
    const window = { fromMicros: from, untilMicrosExclusive: Math.min(from + stepMicros, until) };
    const timeoutMs = Math.max(1, deadlineMs - performance.now());
    const count = await countWindow(clickhouse, { ...scope, window }, timeoutMs, signal);
    members += count.members;
    late += count.late;
  }
  return { members, late };
}

async function countStoredRows(clickhouse: ClickHouse, scope: ExportScope, signal?: AbortSignal): Promise<number> {
  const { sql, params } = buildMembersCondition(scope, {});
  const [row] = await clickhouse.query<{ rows: number }>({
    name: 'count-stored',
    sql: `SELECT count() AS rows FROM runs WHERE ${sql}`,
    params,
    timeoutMs: countTimeoutMs,
    ...(signal && { signal }),
  });
  return row?.rows ?? 0;
}

async function countWindow(
  clickhouse: ClickHouse,
  scope: ExportScope,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<MemberCount> {
  const condition = buildMembersCondition(scope, {});
  const filter = buildMembersFilter(scope, condition);
  const [row] = await clickhouse.query<MemberCount>({
    name: 'count-members',
    sql: `${filter.withSql} SELECT countIf(${memberCondition}) AS members, countIf(NOT (${memberCondition})) AS late
          FROM runs FINAL PREWHERE ${condition.sql} WHERE ${[exportableCondition, ...filter.sql].join(' AND ')}`,
    params: { ...condition.params, ...filter.params },
    settings: filter.settings,
    timeoutMs,
    ...(signal && { signal }),
  });
  return row ?? { members: 0, late: 0 };
}
