/**
 * Deletes deployments whose deletion was requested.
 *
 *   1. Hosts stop the replicas, which are no longer wanted. Until then nothing is deleted.
 *   2. Close the row of the agent server, so that no row is added to it; delete the rows of the agent server
 *      (`delete-agent-rows.ts`).
 *   3. Delete the uploaded sources and, if that was requested, the tracing project.
 *   4. Delete the deployment with its revisions, logs and secrets.
 *
 * Each step may be repeated. Traces and usage stay.
 */

import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { type AgentRowsDeps, deleteAgentRows } from '../agents/delete-agent-rows.ts';
import { deleteProjects } from '../projects/delete-projects.ts';
import type { ProjectResolver } from '../projects/resolve-project.ts';
import type { SourceStore } from './source-store.ts';

export interface DeletionDeps extends AgentRowsDeps {
  readonly database: Database;
  readonly logger: Logger;
  readonly sourceStore: SourceStore;
  readonly projects: ProjectResolver;
  readonly enqueueProjectDeletion: (project: { workspaceId: string; projectId: string }) => Promise<void>;
}

interface DeletedDeployment {
  readonly id: string;
  readonly workspaceId: string;
  readonly projectId: string | null;
}

/** Deletes the deployments that are due. Two hosts may do this at the same time. */
export async function deleteRequestedDeployments(deps: DeletionDeps): Promise<void> {
  const due = await deps.database.query<DeletedDeployment>(
    `SELECT d.id, d.workspace_id AS "workspaceId", CASE WHEN d.deletes_project THEN d.tracing_project_id END AS "projectId"
     FROM deployments AS d WHERE d.deletion_requested_at IS NOT NULL AND NOT EXISTS (
       SELECT FROM deployment_replicas AS p WHERE p.deployment_id = d.id AND p.lease_until > clock_timestamp())
     ORDER BY d.deletion_requested_at LIMIT 10`,
  );
  for (const deployment of due) {
    await deleteDeployment(deps, deployment);
    deps.logger.info({ deploymentId: deployment.id }, 'deployment deleted');
  }
}

async function deleteDeployment(deps: DeletionDeps, { id, workspaceId, projectId }: DeletedDeployment): Promise<void> {
  const { database, sourceStore } = deps;
  await deleteAgentRows(deps, [id]);
  const uploads = await database.query<{ path: string }>(
    'SELECT object_path AS path FROM source_uploads WHERE deployment_id = $1',
    [id],
  );
  for (const { path } of uploads) await (await sourceStore.open()).delete(path);
  if (projectId !== null) {
    await deleteProjects(deps, workspaceId, [projectId]).catch((error: unknown) => {
      // Its owner has deleted the project before.
      if (!isRunlakeError(error) || error.code !== 'NOT_FOUND') throw error;
    });
  }
  await database.execute('DELETE FROM deployments WHERE id = $1', [id]);
}
