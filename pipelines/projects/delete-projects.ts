import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows, storeDeletionKeys } from '../../infra/clickhouse/delete-rows.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { type EventLog, waitUntilStored } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { attachmentEvents, feedbackEvents, runEvents, type Topic } from '../../schemas/topics.ts';
import { ofRunCondition } from '../attachments/attachment-sets.ts';
import { deleteUnstoredEvents } from '../dead-letters/delete-unstored-events.ts';
import { toUniqueIds } from '../ingest/run-event/uuid.ts';
import { removeFromQueues } from '../queues/remove-gone-runs.ts';
import type { ProjectResolver } from './resolve-project.ts';

export interface DeletedProject {
  readonly workspaceId: string;
  readonly projectId: string;
}

/**
 * A deleted project or workspace is purged twice. The second purge, an hour after the deletion, deletes events that
 * were still in the log during the first one. It counts only if the sinks have stored all events that were accepted
 * before it. The first sets `purged_at` to `deleted_at`.
 */
const secondPurgeDelay = `interval '1 hour'`;

/** Condition on deleted projects and workspaces that the second purge is due. */
export const isSecondPurgeDueSql = `deleted_at + ${secondPurgeDelay} <= now()`;

/** Condition on projects and workspaces that both purges have ended. */
export const isPurgedSql = `coalesce(purged_at >= deleted_at + ${secondPurgeDelay}, false)`;

/** How long the second purge waits for the sinks. */
const sinkTimeoutMs = 60_000;

/** Topics whose events are purged. Each has its own sinks. */
const purgedTopics = [runEvents, feedbackEvents, attachmentEvents];

export type PurgeLog = Pick<EventLog, 'position' | 'isStored'>;

/**
 * Returns whether a purge counts as the second one. It is decided before the purge: a first purge that runs past the hour
 * must not count.
 */
export async function isSecondPurge(
  log: PurgeLog,
  { isDue, signal }: { readonly isDue: boolean; readonly signal: AbortSignal | undefined },
): Promise<boolean> {
  if (!isDue) return false;
  const wait = (topic: Topic) => waitUntilStored(log, topic, { timeoutMs: sinkTimeoutMs, signal });
  return (await Promise.all(purgedTopics.map(wait))).every((isStored) => isStored);
}

/** Condition on deleted projects or workspaces that a purge is due. */
export const isPurgeDueSql = `deleted_at IS NOT NULL AND (purged_at IS NULL
  OR (purged_at < deleted_at + ${secondPurgeDelay} AND ${isSecondPurgeDueSql}))`;

/**
 * Deletes either all given projects or none. Their names become available at once, and a job deletes their runs. The
 * rows of the projects stay, because usage shows the names. A crash before the job is queued leaves `purged_at` empty;
 * `requeueDeletions` then queues the job.
 *
 * @throws NOT_FOUND if the workspace has no project with one of the ids, or if such a project is deleted.
 */
export async function deleteProjects(
  {
    database,
    projects,
    enqueueProjectDeletion,
  }: {
    database: Database;
    projects: ProjectResolver;
    enqueueProjectDeletion: (project: DeletedProject) => Promise<void>;
  },
  workspaceId: string,
  projectIds: readonly string[],
): Promise<void> {
  const uniqueIds = toUniqueIds(projectIds);
  await database.transaction(async (tx) => {
    const count = await tx.execute(
      `UPDATE projects SET deleted_at = now(), updated_at = now()
       WHERE id = ANY ($1::uuid[]) AND workspace_id = $2 AND deleted_at IS NULL`,
      [uniqueIds, workspaceId],
    );
    if (count !== uniqueIds.length) throw runlakeError('NOT_FOUND', { what: 'Session' });
  });
  projects.forget();
  for (const projectId of uniqueIds) await enqueueProjectDeletion({ workspaceId, projectId });
}

/** Assignments that remove what clients stored with a project. Its name stays, because usage shows it. */
export const clearedColumnsSql = `description = NULL, extra = NULL, metadata = '{}'`;

const projectRunsCondition = 'tenant_id = {tenant:UUID} AND session_id = {project:UUID}';

/**
 * Deletes the stored runs of a deleted project, with their attachments, feedback, dead-letter records of the in-process
 * log and rows of annotation queues, and its description and metadata, and sets `purged_at`. Usage stays, because traces
 * are billing facts. Reads omit runs of deleted projects, both before this call and for events that are stored later, which
 * the second purge deletes. Leaves a project without `deleted_at` unchanged. Idempotent.
 */
export async function deleteProjectRuns(
  { clickhouse, database, log }: { clickhouse: ClickHouse; database: Database; log: PurgeLog },
  { workspaceId, projectId, signal }: DeletedProject & { readonly signal?: AbortSignal },
): Promise<void> {
  const [deleted] = await database.query<{ isDue: boolean }>(
    `SELECT ${isSecondPurgeDueSql} AS "isDue" FROM projects
     WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NOT NULL`,
    [projectId, workspaceId],
  );
  if (deleted === undefined) return;
  const isSecond = await isSecondPurge(log, { isDue: deleted.isDue, signal });
  const rest = {
    params: { tenant: workspaceId, project: projectId },
    timeoutMs: 3_600_000,
    signal,
  };
  // Attachments and feedback may be stored after the first purge has deleted their runs. Locators outlive the runs, but the
  // search reads those of all projects of the tenant.
  const sql = isSecond
    ? 'SELECT DISTINCT id FROM run_locator FINAL WHERE tenant_id = {tenant:UUID} AND pick.5 = {project:UUID}'
    : `SELECT DISTINCT id FROM runs WHERE ${projectRunsCondition}`;
  const runs = await storeDeletionKeys(clickhouse, { sql, ...rest });
  // Also records of the project itself, and of traces whose root is not stored.
  await deleteUnstoredEvents({ clickhouse, database }, workspaceId, {
    sql: `SELECT id FROM ${runs} UNION ALL SELECT {project:UUID} UNION ALL SELECT trace_id FROM trace_locations
      WHERE tenant_id = {tenant:UUID} AND trace_id IN candidates
      GROUP BY trace_id HAVING argMin(session_id, version) = {project:UUID}`,
    params: rest.params,
  });
  await removeFromQueues({ clickhouse, database }, workspaceId, runs);
  await database.execute(
    `DELETE FROM annotation_queue_runs WHERE run_id IS NULL AND project_id = $2
       AND queue_id IN (SELECT id FROM annotation_queues WHERE workspace_id = $1)`,
    [workspaceId, projectId],
  );
  const runCondition = `tenant_id = {tenant:UUID} AND run_id IN ${runs}`;
  // Runs are deleted after their attachments and feedback, because a repeated call needs them to find these.
  const deletions = [
    { table: 'attachments', condition: `${runCondition} AND ${ofRunCondition}` },
    { table: 'feedback', condition: `${runCondition} OR ${projectRunsCondition}` },
    { table: 'runs', condition: projectRunsCondition },
    { table: 'run_facts', condition: projectRunsCondition },
  ];
  for (const { table, condition } of deletions) {
    await deleteRows(clickhouse, { name: `delete-project-${table}`, table, condition, ...rest });
  }
  await database.execute(
    `UPDATE projects SET ${clearedColumnsSql}, purged_at = CASE WHEN $2 THEN now() ELSE deleted_at END WHERE id = $1`,
    [projectId, isSecond],
  );
}

/**
 * Queues the deletion job for every deleted project that has not been purged, or that is due for the second purge. The
 * first job may be missing after a crash, or after the queues were unavailable or lost.
 */
export async function requeueDeletions({
  database,
  enqueueProjectDeletion,
}: {
  database: Database;
  enqueueProjectDeletion: (project: DeletedProject) => Promise<void>;
}): Promise<void> {
  const left = await database.query<DeletedProject>(
    `SELECT id AS "projectId", workspace_id AS "workspaceId" FROM projects WHERE ${isPurgeDueSql}`,
  );
  for (const project of left) await enqueueProjectDeletion(project);
}
