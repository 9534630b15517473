import type { Database, Sql } from '../../infra/postgres/database.ts';
import { recordAuditLog } from '../tenants/audit-logs.ts';
import { lockDeployment } from './lock-deployment.ts';
import { endUnfinishedRevisions } from './states.ts';

/**
 * Requests the deletion of a deployment. A host stops its replicas, then deletes its rows (`delete-deployment.ts`). Its
 * name is free at once or, if its project is deleted, afterwards. The caller must have checked that the project may be
 * deleted.
 *
 * @throws NOT_FOUND
 */
export async function requestDeletion(
  database: Database,
  workspaceId: string,
  deploymentId: string,
  { deletesProject }: { readonly deletesProject: boolean },
): Promise<void> {
  await database.transaction(async (tx) => {
    const { id, tracingProjectId } = await lockDeployment(tx, workspaceId, deploymentId);
    if (deletesProject) await recordProjectDeletion(tx, workspaceId, { id, tracingProjectId });
    await endUnfinishedRevisions(tx, id, 'The deployment is deleted.');
    await tx.execute(
      // A project that is created later with the same name is not deleted.
      `UPDATE deployments SET deletion_requested_at = now(), deletes_project = $2, tracing_project_id = $3, updated_at = now()
       WHERE id = $1`,
      [id, deletesProject, tracingProjectId],
    );
    await tx.execute("SELECT pg_notify('deployments', $1)", [id]);
  });
}

/** Adds the deletion to the audit log. The host that deletes the project later does not know who requested it. */
async function recordProjectDeletion(
  tx: Sql,
  workspaceId: string,
  { id, tracingProjectId }: { readonly id: string; readonly tracingProjectId: string | null },
): Promise<void> {
  const projects = await tx.query<{ id: string; name: string }>(
    'SELECT id, name FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL',
    [tracingProjectId, workspaceId],
  );
  for (const project of projects) {
    const target = { kind: 'project', ...project };
    await recordAuditLog(tx, { workspaceId, action: 'project.delete', target, details: { deployment_id: id } });
  }
}

/** Requests the deletion of all deployments of a workspace, and deletes their secrets at once. Idempotent. */
export async function requestDeletionOfAll(tx: Sql, workspaceId: string): Promise<void> {
  const deployments = await tx.query<{ id: string }>(
    'SELECT id FROM deployments WHERE workspace_id = $1 ORDER BY id FOR UPDATE',
    [workspaceId],
  );
  for (const { id } of deployments) {
    await endUnfinishedRevisions(tx, id, 'The workspace is deleted.');
    await tx.execute(
      `UPDATE deployments SET deletion_requested_at = coalesce(deletion_requested_at, now()), sealed_secrets = NULL,
         secret_names = '{}' WHERE id = $1`,
      [id],
    );
    await tx.execute('UPDATE deployment_revisions SET sealed_secrets = NULL WHERE deployment_id = $1', [id]);
    await tx.execute("SELECT pg_notify('deployments', $1)", [id]);
  }
}
