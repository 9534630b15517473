/**
 * Usage with the tokens and costs of the traces. Traces are counted as in every usage report; tokens and costs are the
 * statistics of their root runs (`stats/figure-sums.ts`), so that they agree with those of projects and runs. Thus they
 * are those of traces that are still stored, in the hour of the root run.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { startRoundingMicros } from '../ingest/run-event/times.ts';
import { readLiveProjectIds } from '../runs/locate-run.ts';
import { readDirtyHours } from '../runs/stats/fact-rows.ts';
import { buildFigureQuery, type FigureRow } from '../runs/stats/figure-sums.ts';
import { canReadFacts, type RunGrouping } from '../runs/stats/matching-runs.ts';
import {
  buildDimensions,
  type GranularUsageRequest,
  generateUsageRows,
  readGranularUsage,
  readNames,
  type UsageRow,
} from './report.ts';
import type { Grouping } from './report-query.ts';
import { type BucketPlan, computeBucketBounds, planBuckets, type Stride } from './rollup-query.ts';

/** The figures of one bucket and dimension. */
export interface TokenUsageRow extends UsageRow {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly totalTokens: number;
  /** In US dollars; null if no run states a cost. */
  readonly totalCost: number | null;
}

interface Deps {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

/** Workspaces that are read at once. */
const maxConcurrent = 4;
const figures = (['prompt_tokens', 'completion_tokens', 'total_tokens', 'total_cost'] as const).map((figure) => ({
  figure,
  hasPercentiles: false,
}));

/** SQL over `runs FINAL`: the id of each grouping. Columns of tuples are read by position, see `rollup-query.ts`. */
const idSql: Readonly<Record<Grouping, string>> = {
  workspace: 'tenant_id',
  project: 'session_id',
  user: 'sender.2',
  api_key: 'sender.3',
};
/** Groupings whose ids are columns of `run_facts`. */
const factGroupings: readonly Grouping[] = ['workspace', 'project'];

/**
 * Reads the rows of `readGranularUsage` with tokens and costs, ordered by bucket, then by dimension. As there, ids with
 * equal dimensions are added up.
 *
 * @throws errors of ClickHouse and Postgres.
 */
export async function readTokenUsage(
  deps: Deps,
  request: GranularUsageRequest,
): Promise<{ readonly stride: Stride; readonly rows: readonly TokenUsageRow[] }> {
  const { organizationId, workspaceIds, groupBy } = request;
  const plan = planBuckets(request.range);
  async function sumWorkspaces() {
    const sums: { bucket: number; id: string; row: FigureRow }[] = [];
    for (let at = 0; at < workspaceIds.length; at += maxConcurrent) {
      const read = workspaceIds.slice(at, at + maxConcurrent).map((id) => sumTokens(deps, plan, id, groupBy));
      sums.push(...(await Promise.all(read)).flat());
    }
    return sums;
  }
  const [usage, sums] = await Promise.all([readGranularUsage(deps, request), sumWorkspaces()]);
  const ids = [...new Set(sums.map(({ id }) => id))].filter((id) => id !== nilUuid);
  const names = await readNames(deps.database, organizationId, groupBy, ids);
  const rows = new Map<string, TokenUsageRow>();
  const add = (row: TokenUsageRow) => {
    const key = `${String(row.startSeconds).padStart(12, '0')} ${JSON.stringify(Object.values(row.dimensions))}`;
    rows.set(key, addUp(row, rows.get(key)));
  };
  for (const row of generateUsageRows(usage)) {
    add({ ...row, promptTokens: 0, completionTokens: 0, totalTokens: 0, totalCost: null });
  }
  for (const { bucket, id, row } of sums) {
    add({
      ...computeBucketBounds(plan, bucket),
      dimensions: buildDimensions(groupBy, id === nilUuid ? null : id, names.get(id) ?? null),
      traces: 0,
      promptTokens: row.prompt_tokens ?? 0,
      completionTokens: row.completion_tokens ?? 0,
      totalTokens: row.total_tokens ?? 0,
      totalCost: row.total_cost,
    });
  }
  const sorted = [...rows].sort(([one], [other]) => (one < other ? -1 : 1));
  return { stride: usage.stride, rows: sorted.map(([, row]) => row) };
}

function addUp(row: TokenUsageRow, other: TokenUsageRow | undefined): TokenUsageRow {
  if (other === undefined) return row;
  const isCostUnknown = row.totalCost === null && other.totalCost === null;
  return {
    ...row,
    traces: row.traces + other.traces,
    promptTokens: row.promptTokens + other.promptTokens,
    completionTokens: row.completionTokens + other.completionTokens,
    totalTokens: row.totalTokens + other.totalTokens,
    totalCost: isCostUnknown ? null : (row.totalCost ?? 0) + (other.totalCost ?? 0),
  };
}

/** Sums the tokens of a workspace by bucket and id. Groups without tokens and costs are omitted. */
async function sumTokens({ clickhouse, database }: Deps, plan: BucketPlan, tenantId: string, groupBy: Grouping) {
  const projectIds = await readLiveProjectIds(database, tenantId);
  const set = {
    scope: { tenantId, projectIds },
    // The hours are those of the key times, which can differ from the stated start by the rounding of clients. Facts
    // are read without an upper bound only.
    filter: {
      isRoot: true,
      startedFromMicros: plan.startInclusiveSeconds * 1e6 - startRoundingMicros,
      startedBeforeMicros: factGroupings.includes(groupBy)
        ? undefined
        : plan.endExclusiveSeconds * 1e6 + startRoundingMicros,
    },
    groupBy: buildGrouping(plan, groupBy),
  };
  if (projectIds.length === 0) return [];
  const dirtyHours = canReadFacts(set) ? await readDirtyHours(database, tenantId) : undefined;
  // Only the sums: ClickHouse needs longer to plan such a query than to execute it.
  const rows = await clickhouse.query<FigureRow>(buildFigureQuery({ ...set, dirtyHours }, figures));
  return rows.flatMap((row) => {
    const [bucket = '', id = ''] = row.grp.split(' ');
    return row.total_tokens || row.total_cost !== null ? [{ bucket: Number(bucket), id, row }] : [];
  });
}

/**
 * Groups runs by bucket and id, such as `000003 0198…`. Runs outside of the counted hours are in no group. Tokens of a
 * trace with several roots count in the bucket of the first one, so that all strides and groupings have the same total:
 * the bucket is padded, so that the first group in order of text is the earliest.
 */
function buildGrouping(plan: BucketPlan, groupBy: Grouping): RunGrouping {
  const write = (hour: string) =>
    `if(${hour} >= {usage_start:Int64} AND ${hour} < {usage_end:Int64}, concat(leftPad(toString(intDiv(${hour} - {usage_origin:Int64}, {usage_stride:Int64})), 6, '0'), ' ', toString(${idSql[groupBy]})), NULL)`;
  return {
    countsTracesOnce: true,
    sql: write('toInt64(toUnixTimestamp(toStartOfHour(start_time)))'),
    ...(factGroupings.includes(groupBy) ? { factsSql: write('toInt64(toUnixTimestamp(hour))') } : {}),
    params: {
      usage_start: plan.startInclusiveSeconds,
      usage_end: plan.endExclusiveSeconds,
      usage_origin: plan.originSeconds,
      usage_stride: plan.strideSeconds,
    },
  };
}
