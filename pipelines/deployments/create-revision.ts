import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import { isComplete } from './check-source.ts';
import { openSecrets, sealSecrets } from './deployment-secrets.ts';
import type { LockedDeployment } from './lock-deployment.ts';
import { endUnfinishedRevisions, recordTransition } from './states.ts';

/** Number of revisions of a deployment that are kept, for rollbacks. */
const keptRevisions = 100;

/**
 * Creates a revision from the present state of a locked deployment. Unfinished revisions end. If the source is not
 * complete, no revision is created.
 * Revisions older than the newest {@link keptRevisions} are deleted with their logs, except one that serves; hosts then
 * delete their sources.
 *
 * @param options `required`: an incomplete source is an error.
 * @throws DEPLOYMENT_INVALID
 */
export async function createRevision(
  tx: Sql,
  sealer: Sealer,
  deployment: LockedDeployment,
  reason: string,
  { required = false }: { readonly required?: boolean } = {},
): Promise<void> {
  if (!isComplete(deployment)) {
    if (!required) return;
    const missing = 'the deployment has no source yet: upload one, or name an image or a branch';
    throw runlakeError('DEPLOYMENT_INVALID', { field: 'source_revision_config', reason: missing });
  }
  const { id: deploymentId } = deployment;
  await endUnfinishedRevisions(tx, deploymentId);
  const id = randomUUID();
  const secrets = openSecrets(sealer, `deployment ${deploymentId}`, deployment.sealedSecrets);
  await tx.execute(
    `INSERT INTO deployment_revisions (id, deployment_id, workspace_id, number, source, source_config,
       source_revision_config, sealed_secrets, secret_references)
     VALUES ($1, $2, $3, (SELECT coalesce(max(number), 0) + 1 FROM deployment_revisions WHERE deployment_id = $2), $4,
       $5, $6, $7, $8::text::json)`,
    [
      ...[id, deploymentId, deployment.workspaceId, deployment.source, deployment.sourceConfig],
      deployment.sourceRevisionConfig,
      sealSecrets(sealer, `revision ${id}`, secrets),
      JSON.stringify(deployment.secretReferences),
    ],
  );
  await recordTransition(tx, id, { from: null, to: 'CREATING', reason });
  await tx.execute('UPDATE deployments SET latest_revision_id = $2, updated_at = now() WHERE id = $1', [
    deploymentId,
    id,
  ]);
  await tx.execute(
    `DELETE FROM deployment_revisions AS r USING deployments AS d, deployment_revisions AS newest
     WHERE d.id = $1 AND r.deployment_id = d.id AND newest.id = $2 AND r.number <= newest.number - ${keptRevisions}
       AND r.id IS DISTINCT FROM d.active_revision_id
       AND NOT EXISTS (SELECT FROM deployment_replicas AS p WHERE p.revision_id = r.id)`,
    [deploymentId, id],
  );
  await tx.execute("SELECT pg_notify('deployments', $1)", [deploymentId]);
}
