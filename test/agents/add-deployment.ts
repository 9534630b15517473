import { randomUUID } from 'node:crypto';
import type { Sql } from '../../infra/postgres/database.ts';

/**
 * Adds the default deployment of a new organisation with one workspace.
 *
 * @returns the ids of both.
 */
export async function addDeployment(sql: Sql, deploymentId: string = randomUUID()): Promise<string> {
  await sql.execute(`INSERT INTO organizations (id, display_name) VALUES ($1, 'test')`, [deploymentId]);
  const workspaceId = randomUUID();
  await sql.execute(`INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, 'test')`, [
    workspaceId,
    deploymentId,
  ]);
  await addOrganizationDeployment(sql, { organizationId: deploymentId, workspaceId, deploymentId });
  return deploymentId;
}

/**
 * Adds a deployment to an existing organisation.
 *
 * @returns its id; by default a new one.
 */
export async function addOrganizationDeployment(
  sql: Sql,
  owner: { readonly organizationId: string; readonly workspaceId: string; readonly deploymentId?: string },
): Promise<string> {
  const { organizationId, workspaceId, deploymentId = randomUUID() } = owner;
  await sql.execute(
    `INSERT INTO agents.deployments (deployment_id, organization_id, workspace_id, name) VALUES ($1, $2, $3, 'test')`,
    [deploymentId, organizationId, workspaceId],
  );
  return deploymentId;
}
