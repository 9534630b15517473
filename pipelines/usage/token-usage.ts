/**
 * Usage with the tokens and costs of the traces. Traces are counted as in every usage report. Tokens and costs are summed
 * by trace as in statistics of runs (`stats/figure-sums.ts`), so that they agree with those of projects and runs. Thus they
 * are those of traces that are still stored.
 *
 * They count in the hour, project, user and key in which the trace counts (`traces`), and not in those of its root runs: a
 * trace has one hour, but its roots may start in several. So adjacent reports count each trace once. Model calls that start
 * more than a day before the report are not read.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { itemsPerStep, runInTimeSlices, type StepwiseWork, sortInSteps } from '../../infra/timeouts/time-slices.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { readLiveProjectIds } from '../runs/locate-run.ts';
import { lastHourSeconds, readDirtyHours } from '../runs/stats/fact-rows.ts';
import { buildFigureQuery, type FigureRow } from '../runs/stats/figure-sums.ts';
import type { MatchingRuns } from '../runs/stats/matching-runs.ts';
import {
  buildDimensions,
  type GranularUsageRequest,
  generateUsageRows,
  maxFigureRows,
  readGranularUsage,
  readNames,
  reserveFigureRows,
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

/** Tokens and costs of a bucket and the id of its dimension. */
interface TokenSum {
  readonly bucket: number;
  readonly id: string;
  readonly row: FigureRow;
}

/** Workspaces that are read at once. */
const maxConcurrent = 4;
const figures = (['prompt_tokens', 'completion_tokens', 'total_tokens', 'total_cost'] as const).map((figure) => ({
  figure,
  hasPercentiles: false,
}));

/** SQL over `traces FINAL`: the id of each grouping. `pick` is read by position, see `rollup-query.ts`. */
const idSql: Readonly<Record<Grouping, string>> = {
  workspace: 'tenant_id',
  project: 'pick.3',
  user: 'pick.4',
  api_key: 'pick.5',
};

/**
 * Reads the rows of `readGranularUsage` with tokens and costs, ordered by bucket, then by dimension. As there, ids with
 * equal dimensions are added up.
 *
 * @throws the errors of {@link readGranularUsage}.
 */
export async function readTokenUsage(
  deps: Deps,
  request: GranularUsageRequest,
): Promise<{ readonly stride: Stride; readonly rows: readonly TokenUsageRow[] }> {
  const { organizationId, workspaceIds, groupBy } = request;
  const plan = planBuckets(request.range);
  async function sumWorkspaces() {
    const sums: TokenSum[] = [];
    for (let at = 0; at < workspaceIds.length; at += maxConcurrent) {
      const read = workspaceIds.slice(at, at + maxConcurrent).map((id) => sumTokens(deps, plan, id, groupBy));
      for (const found of await Promise.all(read)) for (const sum of found) sums.push(sum);
    }
    return sums;
  }
  // First, because it refuses a report of too many rows.
  const usage = await readGranularUsage(deps, request, maxFigureRows);
  const sums = await sumWorkspaces();
  reserveFigureRows(sums.length);
  const ids = [...new Set(sums.map(({ id }) => id))].filter((id) => id !== nilUuid);
  const names = await readNames(deps.database, organizationId, groupBy, ids);
  function* generateRows(): Generator<TokenUsageRow> {
    for (const row of generateUsageRows(usage)) {
      yield { ...row, promptTokens: 0, completionTokens: 0, totalTokens: 0, totalCost: null };
    }
    for (const { bucket, id, row } of sums) {
      yield {
        ...computeBucketBounds(plan, bucket),
        dimensions: buildDimensions(groupBy, id === nilUuid ? null : id, names.get(id) ?? null),
        traces: 0,
        promptTokens: row.prompt_tokens ?? 0,
        completionTokens: row.completion_tokens ?? 0,
        totalTokens: row.total_tokens ?? 0,
        totalCost: row.total_cost,
      };
    }
  }
  return { stride: usage.stride, rows: await runInTimeSlices(mergeRows(generateRows())) };
}

/** Adds up the rows of equal buckets and dimensions, and sorts them. */
function* mergeRows(rows: Iterable<TokenUsageRow>): StepwiseWork<TokenUsageRow[]> {
  const merged = new Map<string, TokenUsageRow>();
  let read = 0;
  for (const row of rows) {
    if (read++ % itemsPerStep === 0) yield;
    const key = `${String(row.startSeconds).padStart(12, '0')} ${JSON.stringify(Object.values(row.dimensions))}`;
    merged.set(key, addUp(row, merged.get(key)));
  }
  const sorted = yield* sortInSteps([...merged], ([one], [other]) => (one < other ? -1 : 1));
  return sorted.map(([, row]) => row);
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
async function sumTokens(
  { clickhouse, database }: Deps,
  plan: BucketPlan,
  tenantId: string,
  groupBy: Grouping,
): Promise<TokenSum[]> {
  const traces = selectTraces(plan, tenantId, groupBy);
  const projectIds = await readLiveProjectIds(database, tenantId);
  if (projectIds.length === 0 || traces === undefined) return [];
  const set = {
    scope: { tenantId, projectIds },
    filter: { startedFromMicros: plan.startInclusiveSeconds * 1e6 },
    countedTraces: traces,
    dirtyHours: await readDirtyHours(database, tenantId),
  };
  // Only the sums: ClickHouse needs longer to plan such a query than to execute it.
  const rows = await clickhouse.query<FigureRow>(buildFigureQuery(set, figures));
  return rows.flatMap((row) => {
    const [bucket = '', id = ''] = row.grp.split(' ');
    return row.total_tokens || row.total_cost !== null ? [{ bucket: Number(bucket), id, row }] : [];
  });
}

/**
 * Selects the traces that count in the hours of a report, each with its bucket and id, such as `3 0198…`. Returns undefined
 * if there can be none.
 */
function selectTraces(plan: BucketPlan, tenantId: string, groupBy: Grouping): MatchingRuns | undefined {
  const { startInclusiveSeconds: start, originSeconds, strideSeconds } = plan;
  const end = Math.min(plan.endExclusiveSeconds, lastHourSeconds);
  if (start >= end) return undefined;
  return {
    sql: `SELECT trace_id, concat(toString(intDiv(toUnixTimestamp(hour) - {usage_origin:UInt32}, {usage_stride:UInt32})), ' ', toString(${idSql[groupBy]})) AS grp
      FROM traces FINAL WHERE tenant_id = {tenant:UUID}
        AND hour >= toDateTime({usage_start:UInt32}, 'UTC') AND hour < toDateTime({usage_end:UInt32}, 'UTC')`,
    params: {
      tenant: tenantId,
      usage_start: start,
      usage_end: end,
      usage_origin: originSeconds,
      usage_stride: strideSeconds,
    },
    settings: {},
  };
}
