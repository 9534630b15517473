/**
 * The counts of a report, out of ClickHouse or, where nothing of them changed since, out of memory.
 *
 * Invariant: what is kept was read after the change it is kept under. So where Postgres still names that change as the last,
 * ClickHouse would answer the same.
 *
 *   1. The last change that touches the report is read from Postgres.
 *   2. Counts that are kept under this very change are the answer.
 *   3. Otherwise ClickHouse answers, and its counts are kept under the change of step 1. A pass that ends between the two steps,
 *      or is under way in step 3, names a later one when it ends, so what was read half-way does not outlive it.
 *
 * Counts are kept for a minute at most: what somebody does to the tables by hand, and what a replica is late with, passes.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Grouping } from './grouping.ts';
import { readUsageRows, type UsageCounts } from './read-usage-rows.ts';
import type { BucketPlan } from './stride.ts';
import { lastChange } from './usage-changes.ts';
import { readReports } from './usage-metrics.ts';
import { usageQuery } from './usage-query.ts';

export interface UsageCountsPorts {
  readonly warehouse: Pick<Warehouse, 'queryText'>;
  readonly database: Pick<Database, 'query'>;
  /** Most memory that kept counts take, in bytes; 0 keeps none. */
  readonly cacheBytes: number;
}

/** @throws what ClickHouse and Postgres throw. */
export type ReadUsageCounts = (
  plan: BucketPlan,
  workspaceIds: readonly string[],
  groupBy: Grouping,
) => Promise<UsageCounts>;

const none: UsageCounts = { ids: [], rows: [] };
const longestKeptMs = 60_000;

export function createUsageCounts({ warehouse, database, cacheBytes }: UsageCountsPorts): ReadUsageCounts {
  const kept = new LRUCache<string, { readonly change: number; readonly counts: UsageCounts }>({
    maxSize: Math.max(1, cacheBytes),
    sizeCalculation: ({ counts }, key) => key.length + bytesOf(counts),
    ttl: longestKeptMs,
  });
  return async (plan, workspaceIds, groupBy) => {
    const query = usageQuery(plan, workspaceIds, groupBy);
    if (query === undefined) return none;
    const read = async () => {
      readReports.inc({ source: 'clickhouse' });
      return readUsageRows(await warehouse.queryText({ ...query, format: 'RowBinary' }));
    };
    if (cacheBytes === 0) return read();

    const key = keyOf(plan, workspaceIds, groupBy);
    const change = await lastChange(database, workspaceIds, {
      startSeconds: plan.startInclusiveSeconds,
      endSeconds: plan.endExclusiveSeconds,
    });
    const found = kept.get(key);
    if (found?.change === change) {
      readReports.inc({ source: 'memory' });
      return found.counts;
    }
    const counts = await read();
    kept.set(key, { change, counts });
    return counts;
  };
}

/** The rows follow from nothing else. */
function keyOf(plan: BucketPlan, workspaceIds: readonly string[], groupBy: Grouping): string {
  const { startInclusiveSeconds, endExclusiveSeconds, originSeconds, strideSeconds } = plan;
  const question = [groupBy, startInclusiveSeconds, endExclusiveSeconds, originSeconds, strideSeconds];
  return createHash('sha256')
    .update([...question, ...workspaceIds.toSorted()].join())
    .digest('base64');
}

/** About what they take in memory. */
function bytesOf({ ids, rows }: UsageCounts): number {
  const perId = 64;
  const perRow = 300;
  return rows.reduce(
    (sum, { places, traces }) => sum + perRow + places.byteLength + traces.byteLength,
    ids.length * perId,
  );
}
