/**
 * Deletes all data of a deleted workspace. `traces` and the roll-ups of usage stay, because bills are based on them.
 * The rows of the organisation, workspaces, users, keys and projects also stay, because reports show their names.
 *
 * Invariant: rows are deleted only if `deleted_at` of their workspace is set; it is never cleared.
 *
 *   1. Cancel exports and delete the credentials of destinations.
 *   2. Request the deletion of the deployments of the control plane and delete their secrets; a host stops their
 *      replicas and deletes the rest. Delete the rows of all agent servers (`agents/delete-agent-rows.ts`).
 *   3. Delete shares, datasets, repos, queues, configs, OAuth tokens, evaluators, prices, deferred events, and
 *      dead-letter records of the embedded log. Clear what clients stored with projects.
 *   4. Delete rows in ClickHouse.
 *   5. Set `purged_at`.
 *
 * Each step may be repeated; after a crash the job is queued again, because `purged_at` is empty. A second purge, an
 * hour after the deletion, deletes events that were still in the log during the first one; it is repeated until the
 * sinks have stored all events that were accepted before it. Only the second purge
 * deletes the tables that locate runs and traces. Until then a late event gets the stored time of its trace from them,
 * so that the trace is not counted again in another hour.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../infra/clickhouse/delete-rows.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { createDeletion, deleteAgentRows, deletionTimeoutMs } from '../agents/delete-agent-rows.ts';
import { requestDeletionOfAll } from '../deployments/request-deletion.ts';
import { finishExport } from '../exports/states.ts';
import {
  clearedColumnsSql,
  isPurgeDueSql,
  isSecondPurge,
  isSecondPurgeDueSql,
  type PurgeLog,
} from '../projects/delete-projects.ts';

export interface WorkspaceDeletionDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
  readonly jobs: Pick<Jobs, 'enqueue'>;
  readonly log: PurgeLog;
  readonly logger: Logger;
}

const contentTables = ['attachments', 'feedback', 'runs', 'run_facts'];
const locatorTables = ['run_locator', 'trace_locations', 'trace_marks', 'event_versions'];

const deleteProvidersSql = `DELETE FROM oauth_providers p USING organizations o, workspaces w
  WHERE w.id = $1 AND o.id = w.organization_id AND o.deleted_at IS NOT NULL AND p.organization_id = o.id`;

/**
 * Performs the steps of the header comment. Leaves a workspace without `deleted_at` unchanged.
 *
 * @throws errors of the stores.
 */
export async function deleteWorkspaceData(
  deps: WorkspaceDeletionDeps,
  { workspaceId, signal }: { readonly workspaceId: string; readonly signal?: AbortSignal },
): Promise<void> {
  const { database, clickhouse, log } = deps;
  const [deleted] = await database.query<{ isDue: boolean; deploymentIds: string[] }>(
    `SELECT ${isSecondPurgeDueSql} AS "isDue",
       ARRAY(SELECT deployment_id FROM agents.deployments WHERE workspace_id = workspaces.id) AS "deploymentIds"
     FROM workspaces WHERE id = $1 AND deleted_at IS NOT NULL`,
    [workspaceId],
  );
  if (deleted === undefined) return;
  const { isDue, deploymentIds } = deleted;
  const isSecond = await isSecondPurge(log, { isDue, signal });
  const execute = createDeletion(database, signal);

  await endExports(deps, workspaceId);
  await database.transaction((tx) => requestDeletionOfAll(tx, workspaceId));
  await deleteAgentRows(deps, deploymentIds, signal);
  // Examples and versions are deleted together with their datasets, and attachments of examples together with those of
  // runs.
  await execute('DELETE FROM datasets WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM repos WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM pending_attachment_sets WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM annotation_queues WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM feedback_configs WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM feedback_tokens WHERE workspace_id = $1', [workspaceId]);
  // Values and taggings are deleted together with their tag keys.
  await execute('DELETE FROM tag_keys WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM usage_limits WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM workspace_secrets WHERE workspace_id = $1', [workspaceId]);
  // Connections are deleted together with their tokens. Providers stay, unless the organisation is deleted too.
  await execute('DELETE FROM oauth_tokens WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM oauth_authentications WHERE workspace_id = $1', [workspaceId]);
  await execute(deleteProvidersSql, [workspaceId]);
  await execute('DELETE FROM evaluators WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM model_prices WHERE workspace_id = $1', [workspaceId]);
  await execute(`UPDATE projects SET ${clearedColumnsSql} WHERE workspace_id = $1`, [workspaceId]);
  await execute('DELETE FROM deferred_events WHERE tenant_id = $1', [workspaceId]);
  await execute('DELETE FROM shares WHERE workspace_id = $1', [workspaceId]);
  await execute('DELETE FROM trace_changes WHERE tenant_id = $1', [workspaceId]);
  // The keys of topics begin with the id of the workspace.
  await execute(`DELETE FROM dead_letters WHERE encode(substring(key FOR 36), 'escape') = $1`, [workspaceId]);

  for (const table of isSecond ? [...contentTables, ...locatorTables] : contentTables) {
    await deleteRows(clickhouse, {
      name: `delete-workspace-${table}`,
      table,
      condition: 'tenant_id = {workspace:UUID}',
      params: { workspace: workspaceId },
      timeoutMs: deletionTimeoutMs,
      signal,
    });
  }
  await database.execute(
    `UPDATE workspaces SET purged_at = CASE WHEN $2 THEN now() ELSE deleted_at END WHERE id = $1`,
    [workspaceId, isSecond],
  );
}

async function endExports({ database, jobs, logger }: WorkspaceDeletionDeps, workspaceId: string): Promise<void> {
  const unfinished = await database.query<{ id: string }>(
    'SELECT id FROM bulk_exports WHERE workspace_id = $1 AND finished_at IS NULL',
    [workspaceId],
  );
  const end = { to: 'CANCELLED', reason: 'Its workspace was deleted.' } as const;
  for (const { id } of unfinished) await finishExport({ database, jobs, logger }, id, end);
  await database.execute(
    `UPDATE bulk_export_destinations SET deleted_at = coalesce(deleted_at, now()), updated_at = now(),
       sealed_credentials = NULL, credentials_keys = '{}' WHERE workspace_id = $1`,
    [workspaceId],
  );
}

/**
 * Queues the deletion of workspaces that have not been purged, or that are due for the second purge. Before that, marks
 * workspaces as deleted if they were created while their organisation was being deleted.
 */
export async function requeueWorkspaceDeletions({
  database,
  enqueueWorkspaceDeletion,
}: {
  readonly database: Database;
  readonly enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
}): Promise<void> {
  await database.execute(
    `UPDATE workspaces SET deleted_at = now() FROM organizations o
     WHERE o.id = organization_id AND o.deleted_at IS NOT NULL AND workspaces.deleted_at IS NULL`,
  );
  const due = await database.query<{ id: string }>(`SELECT id FROM workspaces WHERE ${isPurgeDueSql}`);
  for (const { id } of due) await enqueueWorkspaceDeletion(id);
}
