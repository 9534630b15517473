/** Usage of agent servers: graph runs, executed nodes and uptime, which Postgres counts when runs end (`agents.usage_hourly`). */
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { buildDimensions, type Dimensions, type GranularUsageRequest } from './report.ts';
import type { Grouping } from './report-query.ts';
import { type BucketBounds, computeBucketBounds, planBuckets, type Stride } from './rollup-query.ts';

/** The figures of one bucket and dimension. */
export interface AgentUsageRow extends BucketBounds {
  readonly dimensions: Dimensions;
  readonly nodesExecuted: number;
  readonly agentRuns: number;
  readonly uptimeSeconds: number;
}

/**
 * SQL of the id and the name of each grouping. A project is found by its present name or by a former one; if there is
 * none, it has a name but no id.
 */
const groupingSql: Readonly<Record<Grouping, { readonly id: string; readonly name: string; readonly join: string }>> = {
  workspace: {
    id: 'usage.workspace_id',
    name: 'named.display_name',
    join: 'LEFT JOIN workspaces AS named ON named.id = usage.workspace_id',
  },
  project: {
    id: 'named.id',
    name: 'coalesce(named.name, usage.project_name)',
    join: `LEFT JOIN LATERAL (
      SELECT id, name FROM projects AS p WHERE p.workspace_id = usage.workspace_id AND p.deleted_at IS NULL
        AND (p.name = usage.project_name OR p.id IN (SELECT project_id FROM project_former_names AS former
          WHERE former.workspace_id = usage.workspace_id AND former.name = usage.project_name))
      ORDER BY p.name = usage.project_name DESC, p.id LIMIT 1) AS named ON true`,
  },
  user: {
    id: 'usage.user_id',
    name: 'coalesce(named.email, end_user.identity)',
    join: `LEFT JOIN users AS named ON named.id = usage.user_id
      LEFT JOIN end_users AS end_user ON end_user.id = usage.user_id`,
  },
  api_key: {
    id: 'usage.key_id',
    name: 'named.short_key',
    join: 'LEFT JOIN api_keys AS named ON named.id = usage.key_id',
  },
};

interface Row {
  readonly bucket: number;
  readonly id: string | null;
  readonly name: string | null;
  readonly nodes: number;
  readonly runs: number;
  readonly seconds: number;
}

/**
 * Reads the usage of agent servers in the buckets of `readGranularUsage`, ordered by bucket, then by dimension, without
 * empty rows. Uptime belongs to a deployment, so rows by user or key have none.
 *
 * @throws errors of Postgres.
 */
export async function readAgentUsage(
  database: Pick<Database, 'query'>,
  { organizationId, workspaceIds, range, groupBy }: GranularUsageRequest,
): Promise<{ readonly stride: Stride; readonly rows: readonly AgentUsageRow[] }> {
  const plan = planBuckets(range);
  const { id, name, join } = groupingSql[groupBy];
  const hasUptime = groupBy === 'workspace' || groupBy === 'project';
  const rows = await database.query<Row>(
    `SELECT floor((extract(epoch FROM hour) - $4) / $5)::integer AS bucket, ${id} AS id, ${name} AS name,
       sum(nodes_executed)::bigint AS nodes, sum(agent_runs)::bigint AS runs,
       sum(${hasUptime ? 'uptime_seconds' : '0'})::bigint AS seconds
     FROM agents.usage_hourly AS usage ${join}
     WHERE usage.workspace_id = ANY ($1::uuid[])
       AND usage.workspace_id IN (SELECT w.id FROM workspaces AS w WHERE w.organization_id = $6)
       AND hour >= to_timestamp($2) AND hour < to_timestamp($3)
     GROUP BY 1, 2, 3`,
    [
      workspaceIds,
      plan.startInclusiveSeconds,
      plan.endExclusiveSeconds,
      plan.originSeconds,
      plan.strideSeconds,
      organizationId,
    ],
  );
  const labelled = rows
    .filter(({ nodes, runs, seconds }) => nodes > 0 || runs > 0 || seconds > 0)
    .map((row) => ({ ...row, dimensions: buildDimensions(groupBy, row.id === nilUuid ? null : row.id, row.name) }))
    .map((row) => ({ ...row, label: JSON.stringify(Object.values(row.dimensions)) }))
    .sort((a, b) => a.bucket - b.bucket || (a.label < b.label ? -1 : 1));
  return {
    stride: plan.stride,
    rows: labelled.map(({ bucket, dimensions, nodes, runs, seconds }) => ({
      ...computeBucketBounds(plan, bucket),
      ...{ dimensions, nodesExecuted: nodes, agentRuns: runs, uptimeSeconds: seconds },
    })),
  };
}
