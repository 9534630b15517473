/**
 * Reads the newest runs of one project without `FINAL`: ClickHouse reads stored rows in the order of their keys and stops at
 * the limit. The rows of a run are consecutive, and are merged here as `FINAL` merges them.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import {
  buildKeyQuery,
  type FoundRun,
  type KeyRow,
  keyColumns,
  mergeShards,
  type PageRequest,
  toRunKey,
} from './key-query.ts';
import { boundTimeRange, generateTimeWindows } from './page-slices.ts';
import { isModelCallSql, type RunKey } from './run-columns.ts';
import { buildScopeCondition, type KeyCondition } from './run-scope.ts';

/** Stored rows to read for each run: a post, a patch and a change of the lifetime may not be merged yet. */
const rowsPerRun = 3;
/** More rows to read, because some runs may be deleted. */
const spareRows = 20;

/** Whether a page contains the newest runs of one project, or those after a cursor, without conditions on values. */
export function isNewestRuns({ scope, filter, order }: PageRequest): boolean {
  const isUnfiltered = Object.values(filter).every((condition) => condition === undefined);
  return isUnfiltered && order === 'desc' && scope.projectIds.length === 1;
}

export interface NewestRuns {
  readonly found: FoundRun[];
  /** Whether `found` contains all runs that match, or `limit` of them. */
  readonly isComplete: boolean;
  /** If not, the last run that was considered. */
  readonly last: RunKey | undefined;
}

/** Reads the first `limit` runs of a page that satisfies {@link isNewestRuns}. @throws errors of ClickHouse. */
export async function readNewestRuns(clickhouse: ClickHouse, request: PageRequest, limit: number): Promise<NewestRuns> {
  const found: FoundRun[] = [];
  const maxRows = rowsPerRun * limit + spareRows;
  let last = request.after;
  for (const window of generateTimeWindows(boundTimeRange(request), request.order, Date.now() * 1_000)) {
    const rows = await readStoredRows(clickhouse, request, buildScopeCondition(request.scope, window), maxRows);
    const runs = mergeRows(rows);
    const isWhole = rows.length < maxRows;
    // Some rows of the last run may not have been read.
    if (!isWhole) runs.pop();
    for (const { isDeleted, isCurrent, sizes, ...run } of runs)
      if (!isDeleted && isCurrent) found.push({ ...run, bytes: sizes.reduce((sum, size) => sum + size, 0) });
    last = runs.at(-1) ?? last;
    if (found.length >= limit) return { found: found.slice(0, limit), isComplete: true, last };
    if (!isWhole) return { found, isComplete: false, last };
  }
  return { found, isComplete: true, last };
}

/** Stored rows of one run, merged as `FINAL` does. */
interface StoredRun extends RunKey {
  readonly isDeleted: boolean;
  readonly isCurrent: boolean;
  readonly isModelCall: boolean;
  readonly sizes: readonly number[];
}

interface StoredRow extends KeyRow {
  readonly is_deleted: number;
  readonly is_current: number;
  readonly is_call: number;
  readonly sizes: readonly number[];
}

/** Reads the first stored rows in `keyRange`, at most `maxRows`. */
async function readStoredRows(
  clickhouse: ClickHouse,
  request: PageRequest,
  keyRange: KeyCondition,
  maxRows: number,
): Promise<StoredRun[]> {
  const { tableSql, keySql, positionSql, orderSql, bound } = buildKeyQuery(request, keyRange);
  const rows = await clickhouse.query<StoredRow>({
    ...bound,
    params: { ...bound.params, limit: maxRows },
    name: 'find-newest-runs',
    settings: lookupSettings,
    sql: `SELECT ${keyColumns}, isNotNull(deleted_at) AS is_deleted, expires_at > now() AS is_current,
            ifNull(${isModelCallSql}, 0) AS is_call, [inputs_bytes, outputs_bytes, other_bytes] AS sizes
          FROM ${tableSql}
          WHERE ${[keySql, ...positionSql].join(' AND ')}
          ${orderSql}
          LIMIT {limit:UInt64}`,
  });
  const stored = rows.map((row) => ({
    ...toRunKey(row),
    isDeleted: row.is_deleted === 1,
    isCurrent: row.is_current === 1,
    isModelCall: row.is_call === 1,
    sizes: row.sizes,
  }));
  return mergeShards(stored, request.order, maxRows);
}

/** Merges consecutive rows of the same run. */
function mergeRows(rows: readonly StoredRun[]): StoredRun[] {
  const runs: StoredRun[] = [];
  for (const row of rows) {
    const last = runs.at(-1);
    if (last === undefined || !isSameRun(last, row)) runs.push(row);
    else
      runs[runs.length - 1] = {
        ...last,
        isDeleted: last.isDeleted || row.isDeleted,
        isCurrent: last.isCurrent || row.isCurrent,
        isModelCall: last.isModelCall || row.isModelCall,
        sizes: last.sizes.map((size, index) => Math.max(size, row.sizes[index]!)),
      };
  }
  return runs;
}

function isSameRun(one: RunKey, other: RunKey): boolean {
  return (
    one.runId === other.runId &&
    one.traceId === other.traceId &&
    one.projectId === other.projectId &&
    one.startTimeMicros === other.startTimeMicros
  );
}
