import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';

/**
 * Deletes the stored runs of a project that was deleted. Its usage stays: traces are billing facts. Repeating it is harmless.
 * Until it ran, and for events that come later, the deleted project hides its runs from every read.
 */
export async function deleteProjectRuns(
  warehouse: Warehouse,
  { workspaceId, projectId, signal }: { workspaceId: string; projectId: string; signal?: AbortSignal },
): Promise<void> {
  await warehouse.command({
    name: 'delete-project-runs',
    sql: 'ALTER TABLE runs DELETE WHERE tenant_id = {tenant:UUID} AND session_id = {project:UUID}',
    params: { tenant: workspaceId, project: projectId },
    settings: { mutations_sync: '1' },
    timeoutMs: 3_600_000,
    ...(signal && { signal }),
  });
}
