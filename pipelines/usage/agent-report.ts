/**
 * Usage of agent servers: graph runs, executed nodes and uptime, which Postgres counts when runs end
 * (`agents.usage_hourly`).
 */
import type { Database } from '../../infra/postgres/pool.ts';
import { itemsPerStep, runInTimeSlices, type StepwiseWork, sortInSteps } from '../../infra/timeouts/time-slices.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import {
  buildDimensions,
  createTooManyRowsError,
  type Dimensions,
  type GranularUsageRequest,
  maxFigureRows,
  readNames,
  reserveFigureRows,
} from './report.ts';
import type { Grouping } from './report-query.ts';
import { type BucketBounds, type BucketPlan, computeBucketBounds, planBuckets, type Stride } from './rollup-query.ts';

/** The figures of one bucket and dimension. */
export interface AgentUsageRow extends BucketBounds {
  readonly dimensions: Dimensions;
  readonly nodesExecuted: number;
  readonly agentRuns: number;
  readonly uptimeSeconds: number;
}

const columns: Readonly<Record<Grouping, string>> = {
  workspace: 'workspace_id',
  project: 'project_name',
  user: 'user_id',
  api_key: 'key_id',
};

/** SQL of the id of a project: of the one that has the name now, otherwise of the one that had it. */
const projectIdSql = `coalesce(
  (SELECT id FROM projects AS p WHERE p.workspace_id = usage.workspace_id AND p.deleted_at IS NULL AND p.name = usage.value),
  (SELECT p.id FROM project_former_names AS former JOIN projects AS p ON p.id = former.project_id
   WHERE former.workspace_id = usage.workspace_id AND former.name = usage.value
     AND p.workspace_id = usage.workspace_id AND p.deleted_at IS NULL))`;

interface Row {
  readonly bucket: number;
  readonly id: string | null;
  /** Set if the usage is grouped by project. A project that does not exist has a name but no id. */
  readonly projectName: string | null;
  readonly nodesExecuted: number;
  readonly agentRuns: number;
  readonly uptimeSeconds: number;
}

/**
 * Reads the usage of agent servers in the buckets of `readGranularUsage`, ordered by bucket, then by dimension, without
 * empty rows. As there, ids with equal dimensions are added up. Uptime belongs to a deployment, so rows by user or key
 * have none.
 *
 * @throws BAD_REQUEST if the report has too many rows; errors of Postgres.
 */
export async function readAgentUsage(
  database: Pick<Database, 'query'>,
  { organizationId, workspaceIds, range, groupBy }: GranularUsageRequest,
  max: number = maxFigureRows,
): Promise<{ readonly stride: Stride; readonly rows: readonly AgentUsageRow[] }> {
  const plan = planBuckets(range);
  const hasUptime = groupBy === 'workspace' || groupBy === 'project';
  const byProject = groupBy === 'project';
  // Projects are looked up for the sums: there are many more rows, one for each hour, user, key and shard.
  const rows = await database.query<Row>(
    `SELECT bucket, ${byProject ? projectIdSql : 'value'} AS id, ${byProject ? 'value' : 'NULL'} AS "projectName",
       "nodesExecuted", "agentRuns", "uptimeSeconds"
     FROM (
       SELECT floor((extract(epoch FROM hour) - $4) / $5)::integer AS bucket, workspace_id, ${columns[groupBy]} AS value,
         sum(nodes_executed)::bigint AS "nodesExecuted", sum(agent_runs)::bigint AS "agentRuns",
         sum(${hasUptime ? 'uptime_seconds' : '0'})::bigint AS "uptimeSeconds"
       FROM agents.usage_hourly
       WHERE workspace_id = ANY ($1::uuid[])
         AND workspace_id IN (SELECT w.id FROM workspaces AS w WHERE w.organization_id = $6)
         AND hour >= to_timestamp($2) AND hour < to_timestamp($3)
       GROUP BY 1, 2, 3 LIMIT $7) AS usage`,
    [
      workspaceIds,
      plan.startInclusiveSeconds,
      plan.endExclusiveSeconds,
      plan.originSeconds,
      plan.strideSeconds,
      organizationId,
      max + 1,
    ],
  );
  if (rows.length > max) throw createTooManyRowsError(max);
  reserveFigureRows(rows.length);
  const ids = [...new Set(rows.flatMap(({ id }) => (id === null || id === nilUuid ? [] : [id])))];
  const names = await readNames(database, organizationId, groupBy, ids);
  return { stride: plan.stride, rows: await runInTimeSlices(sumRows(rows, plan, groupBy, names)) };
}

interface Sum {
  readonly row: Row;
  readonly dimensions: Dimensions;
  /** Orders the sums of a bucket. */
  readonly label: string;
}

/** Adds up the rows of equal buckets and dimensions, omits those without usage, and sorts them. */
function* sumRows(
  rows: readonly Row[],
  plan: BucketPlan,
  groupBy: Grouping,
  names: ReadonlyMap<string, string>,
): StepwiseWork<readonly AgentUsageRow[]> {
  const sums = new Map<string, Sum>();
  for (const [index, row] of rows.entries()) {
    if (index % itemsPerStep === 0) yield;
    const id = row.id === nilUuid ? null : row.id;
    const dimensions = buildDimensions(groupBy, id, (id === null ? row.projectName : names.get(id)) ?? null);
    const label = JSON.stringify(Object.values(dimensions));
    const former = sums.get(`${row.bucket} ${label}`)?.row;
    sums.set(`${row.bucket} ${label}`, {
      row: former === undefined ? row : addFigures(former, row),
      dimensions,
      label,
    });
  }
  const used = [...sums.values()].filter(
    ({ row }) => row.nodesExecuted > 0 || row.agentRuns > 0 || row.uptimeSeconds > 0,
  );
  const sorted = yield* sortInSteps(used, (a, b) => a.row.bucket - b.row.bucket || (a.label < b.label ? -1 : 1));
  const summed: AgentUsageRow[] = [];
  for (const [index, { row, dimensions }] of sorted.entries()) {
    if (index % itemsPerStep === 0) yield;
    const { nodesExecuted, agentRuns, uptimeSeconds } = row;
    summed.push({ ...computeBucketBounds(plan, row.bucket), dimensions, nodesExecuted, agentRuns, uptimeSeconds });
  }
  return summed;
}

function addFigures(one: Row, other: Row): Row {
  return {
    ...one,
    nodesExecuted: one.nodesExecuted + other.nodesExecuted,
    agentRuns: one.agentRuns + other.agentRuns,
    uptimeSeconds: one.uptimeSeconds + other.uptimeSeconds,
  };
}
