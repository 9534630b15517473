import type { Sql } from '../../infra/postgres/database.ts';

/** How many objects a workspace has. */
export interface WorkspaceStats {
  readonly tenant_id: string;
  readonly dataset_count: number;
  readonly tracer_session_count: number;
  readonly repo_count: number;
  readonly annotation_queue_count: number;
  readonly deployment_count: number;
  readonly evaluator_count: number;
}

const statsSql = `SELECT $1::uuid AS tenant_id,
  (SELECT count(*) FROM datasets WHERE workspace_id = $1) AS dataset_count,
  (SELECT count(*) FROM projects WHERE workspace_id = $1 AND deleted_at IS NULL) AS tracer_session_count,
  (SELECT count(*) FROM repos WHERE workspace_id = $1) AS repo_count,
  (SELECT count(*) FROM annotation_queues WHERE workspace_id = $1) AS annotation_queue_count,
  (SELECT count(*) FROM agents.deployments WHERE workspace_id = $1 AND closed_at IS NULL) AS deployment_count,
  (SELECT count(*) FROM evaluators WHERE workspace_id = $1) AS evaluator_count`;

export async function readWorkspaceStats(database: Sql, workspaceId: string): Promise<WorkspaceStats> {
  const [stats] = await database.query<WorkspaceStats>(statsSql, [workspaceId]);
  return stats!;
}
