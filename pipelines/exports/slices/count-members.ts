import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import type { ExportScope } from '../export-scope.ts';
import { isMember, placeOfMembers } from './members.ts';

export interface MemberCount {
  /** Runs that belong to the scope. */
  readonly members: number;
  /** Runs of its window that came after the export was made. */
  readonly late: number;
}

/** A day may hold a hundred million runs. */
const timeoutMs = 900_000;

/**
 * Counts the runs of a scope's window; deleted ones are in neither figure.
 * @throws what the warehouse throws, or the reason of `signal`.
 */
export async function countMembers(
  warehouse: Warehouse,
  scope: ExportScope,
  signal?: AbortSignal,
): Promise<MemberCount> {
  const { sql, params } = placeOfMembers(scope, {});
  const [row] = await warehouse.query<MemberCount>({
    name: 'count-members',
    sql: `SELECT countIf(${isMember}) AS members, countIf(NOT (${isMember})) AS late
          FROM runs FINAL PREWHERE ${sql} WHERE isNull(deleted_at)`,
    params,
    timeoutMs,
    ...(signal && { signal }),
  });
  return row ?? { members: 0, late: 0 };
}
