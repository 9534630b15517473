import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { ExportScope } from '../export-scope.ts';
import { isMember, membersCondition } from './members.ts';

export interface MemberCount {
  /** Members of the scope. */
  readonly members: number;
  /** Runs of its window that were received too late to be members. */
  readonly late: number;
}

/** A day may hold a hundred million runs. */
const timeoutMs = 900_000;

/**
 * Counts the runs in the window of a scope, without deleted runs.
 *
 * @throws errors of ClickHouse, or the reason of `signal`.
 */
export async function countMembers(
  clickhouse: ClickHouse,
  scope: ExportScope,
  signal?: AbortSignal,
): Promise<MemberCount> {
  const { sql, params } = membersCondition(scope, {});
  const [row] = await clickhouse.query<MemberCount>({
    name: 'count-members',
    sql: `SELECT countIf(${isMember}) AS members, countIf(NOT (${isMember})) AS late
          FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at)`,
    params,
    timeoutMs,
    ...(signal && { signal }),
  });
  return row ?? { members: 0, late: 0 };
}
