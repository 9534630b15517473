import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { loadOperator } from '../tenants/operator.ts';

/** The deployment that an agent server process serves. */
export interface ServedDeployment {
  readonly deploymentId: string;
  /** The caller that the agent server uses for other parts of Runlake, in the workspace of the deployment. */
  readonly operator: WorkspaceCaller;
}

interface DeploymentRow {
  readonly organization_id: string;
  readonly workspace_id: string;
  readonly workspace_deleted: boolean;
}

/**
 * Reads the deployment that the setting names or, if the setting is unset, the default deployment of the oldest
 * organisation. A default deployment has the id of its organisation. If it does not exist, this function creates it in
 * the first workspace of the organisation.
 *
 * @throws NOT_FOUND if the deployment does not exist, DEPLOYMENT_WITHOUT_WORKSPACE if its workspace was
 *   deleted.
 */
export async function openDeployment(
  database: Database,
  settings: Pick<Config, 'agentsDeployment'>,
): Promise<ServedDeployment> {
  const named = settings.agentsDeployment;
  const deploymentId =
    named === undefined || (await isOrganization(database, named))
      ? await openDefaultDeployment(database, named)
      : named;
  const [row] = await database.query<DeploymentRow>(
    `SELECT deployment.organization_id, deployment.workspace_id, workspace.deleted_at IS NOT NULL AS workspace_deleted
     FROM agents.deployments deployment JOIN workspaces workspace ON workspace.id = deployment.workspace_id
     WHERE deployment_id = $1`,
    [deploymentId],
  );
  if (row === undefined)
    throw runlakeError('NOT_FOUND', { what: `Deployment ${deploymentId} (RUNLAKE_AGENTS_DEPLOYMENT)` });
  const { organization_id: organizationId, workspace_id: workspaceId } = row;
  if (row.workspace_deleted) {
    throw runlakeError('DEPLOYMENT_WITHOUT_WORKSPACE', { deployment: deploymentId, workspace: workspaceId });
  }
  return { deploymentId, operator: { ...(await loadOperator(database, organizationId)), workspaceId } };
}

async function isOrganization(database: Database, id: string): Promise<boolean> {
  return (await database.query('SELECT FROM organizations WHERE id = $1', [id])).length > 0;
}

async function openDefaultDeployment(database: Database, organizationId: string | undefined): Promise<string> {
  const operator = await loadOperator(database, organizationId);
  await database.execute(
    `INSERT INTO agents.deployments (deployment_id, organization_id, workspace_id, name) VALUES ($1, $1, $2, 'default')
     ON CONFLICT DO NOTHING`,
    [operator.organizationId, operator.workspaceId],
  );
  return operator.organizationId;
}
