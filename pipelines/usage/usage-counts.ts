/**
 * Reads the counts of a report from ClickHouse or, if they have not changed, from memory.
 *
 * Invariant: cached counts were read after the change that they are stored under. If Postgres still returns that change
 * as the last one, ClickHouse would return the same counts.
 *
 *   1. Read the last change that affects the report from Postgres.
 *   2. If counts are cached under this change, return them.
 *   3. Otherwise read the counts from ClickHouse and cache them under the change of step 1. A roll-up run that ends
 *      between the two steps, or runs during step 3, records a later change when it ends, so that counts read in
 *      between are not used afterwards.
 *
 * Counts are cached for at most a minute, which bounds the effect of manual changes to the tables and of lagging replicas.
 */
import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Grouping } from './grouping.ts';
import { readUsageRows, type UsageCounts } from './read-usage-rows.ts';
import type { BucketPlan } from './stride.ts';
import { lastChange } from './usage-changes.ts';
import { readReports } from './usage-metrics.ts';
import { usageQuery } from './usage-query.ts';

export interface UsageCountsDeps {
  readonly clickhouse: Pick<ClickHouse, 'queryText'>;
  readonly database: Pick<Database, 'query'>;
  /** Maximum memory of cached counts, in bytes; 0 disables the cache. */
  readonly cacheBytes: number;
}

/** @throws errors of ClickHouse and Postgres. */
export type ReadUsageCounts = (
  plan: BucketPlan,
  workspaceIds: readonly string[],
  groupBy: Grouping,
) => Promise<UsageCounts>;

const none: UsageCounts = { ids: [], rows: [] };
const maxCachedMs = 60_000;

export function createUsageCounts({ clickhouse, database, cacheBytes }: UsageCountsDeps): ReadUsageCounts {
  const cached = new LRUCache<string, { readonly change: number; readonly counts: UsageCounts }>({
    maxSize: Math.max(1, cacheBytes),
    sizeCalculation: ({ counts }, key) => key.length + estimateBytes(counts),
    ttl: maxCachedMs,
  });
  return async (plan, workspaceIds, groupBy) => {
    const query = usageQuery(plan, workspaceIds, groupBy);
    if (query === undefined) return none;
    const read = async () => {
      readReports.inc({ source: 'clickhouse' });
      return readUsageRows(await clickhouse.queryText({ ...query, format: 'RowBinary' }));
    };
    if (cacheBytes === 0) return read();

    const key = buildCacheKey(plan, workspaceIds, groupBy);
    const change = await lastChange(database, workspaceIds, {
      startSeconds: plan.startInclusiveSeconds,
      endSeconds: plan.endExclusiveSeconds,
    });
    const found = cached.get(key);
    if (found?.change === change) {
      readReports.inc({ source: 'memory' });
      return found.counts;
    }
    const counts = await read();
    cached.set(key, { change, counts });
    return counts;
  };
}

/** Cache key: everything that the rows depend on. */
function buildCacheKey(plan: BucketPlan, workspaceIds: readonly string[], groupBy: Grouping): string {
  const { startInclusiveSeconds, endExclusiveSeconds, originSeconds, strideSeconds } = plan;
  const question = [groupBy, startInclusiveSeconds, endExclusiveSeconds, originSeconds, strideSeconds];
  return createHash('sha256')
    .update([...question, ...workspaceIds.toSorted()].join())
    .digest('base64');
}

/** Approximate size in memory. */
function estimateBytes({ ids, rows }: UsageCounts): number {
  const perId = 64;
  const perRow = 300;
  return rows.reduce(
    (sum, { idIndexes, traces }) => sum + perRow + idIndexes.byteLength + traces.byteLength,
    ids.length * perId,
  );
}
