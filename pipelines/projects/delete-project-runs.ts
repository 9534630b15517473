import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { DeletedProject } from './delete-projects.ts';

const runsOfProject = 'tenant_id = {tenant:UUID} AND session_id = {project:UUID}';
const ofItsRuns = `tenant_id = {tenant:UUID} AND run_id IN (SELECT id FROM runs WHERE ${runsOfProject})`;

/** Runs are deleted last: until then, a repeated call still finds their attachments and feedback. */
const deletions = [
  { table: 'attachments', condition: ofItsRuns },
  { table: 'feedback', condition: `${ofItsRuns} OR ${runsOfProject}` },
  { table: 'runs', condition: runsOfProject },
] as const;

/**
 * Deletes the stored runs of a deleted project, with their attachments and feedback, and sets `purged_at`. Usage stays:
 * traces are billing facts. Idempotent. Before it ran, and for events received later, reads leave out runs of deleted
 * projects. Does nothing if the project is not deleted.
 */
export async function deleteProjectRuns(
  { clickhouse, database }: { clickhouse: ClickHouse; database: Database },
  { workspaceId, projectId, signal }: DeletedProject & { readonly signal?: AbortSignal },
): Promise<void> {
  const [deleted] = await database.query(
    'SELECT FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NOT NULL',
    [projectId, workspaceId],
  );
  if (deleted === undefined) return;
  for (const { table, condition } of deletions) {
    await clickhouse.command({
      name: `delete-project-${table}`,
      sql: `ALTER TABLE ${table} DELETE WHERE ${condition}`,
      params: { tenant: workspaceId, project: projectId },
      profile: 'mutation',
      timeoutMs: 3_600_000,
      ...(signal && { signal }),
    });
  }
  await database.execute('UPDATE projects SET purged_at = now() WHERE id = $1', [projectId]);
}
