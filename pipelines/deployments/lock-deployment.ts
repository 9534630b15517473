import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { type DeploymentRecord, deploymentColumns } from './deployment.ts';

/** A deployment whose row is locked by the transaction. */
export interface LockedDeployment extends DeploymentRecord {
  readonly sealedSecrets: string | null;
}

/** Select list of a {@link LockedDeployment} from `deployments AS d`. */
export const lockedColumns = `${deploymentColumns}, d.sealed_secrets AS "sealedSecrets"`;

/**
 * Locks a deployment until the end of the transaction. @throws NOT_FOUND if the workspace has no such deployment, or if
 * it is being deleted.
 */
export async function lockDeployment(tx: Sql, workspaceId: string, deploymentId: string): Promise<LockedDeployment> {
  const [deployment] = await tx.query<LockedDeployment>(
    `SELECT ${lockedColumns} FROM deployments AS d
     WHERE d.id = $1 AND d.workspace_id = $2 AND d.deletion_requested_at IS NULL FOR UPDATE`,
    [deploymentId, workspaceId],
  );
  if (deployment === undefined) throw runlakeError('NOT_FOUND', { what: 'Deployment' });
  return deployment;
}
