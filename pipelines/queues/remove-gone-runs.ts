/**
 * Removes runs that are no longer stored from annotation queues. The deletions of traces and projects do that in all
 * queues of a workspace. Runs that expire leave a queue when its limit is reached.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { locateLiveRuns, readLiveProjectIds } from '../runs/locate-run.ts';

interface Deps {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

/** Condition that a run which is not found may still be in the event log, or that its trace may be moved at this time. */
const mayWaitSql = `(inserted_at > now() - interval '1 day'
  OR EXISTS (SELECT FROM contested_traces WHERE tenant_id = $2))`;

/**
 * Removes runs that were deleted or have expired, and runs and threads of deleted projects, from a queue.
 *
 * @returns the number of removed rows.
 */
export async function removeGoneRuns(
  { clickhouse, database }: Deps,
  workspaceId: string,
  queueId: string,
): Promise<number> {
  const rows = await database.query<{ id: string; runId: string | null; projectId: string | null; mayWait: boolean }>(
    `SELECT id, run_id AS "runId", project_id AS "projectId", ${mayWaitSql} AS "mayWait"
     FROM annotation_queue_runs WHERE queue_id = $1`,
    [queueId, workspaceId],
  );
  const located = await locateLiveRuns(
    clickhouse,
    workspaceId,
    rows.flatMap(({ runId }) => runId ?? []),
  );
  const projectByRun = new Map(located.map(({ runId, projectId }) => [runId, projectId]));
  const findProject = (row: (typeof rows)[number]) => row.projectId ?? projectByRun.get(row.runId ?? '');
  const projectIds = new Set(rows.flatMap((row) => findProject(row) ?? []));
  const live = new Set(await readLiveProjectIds(database, workspaceId, [...projectIds]));
  const gone = rows.filter((row) => {
    const projectId = findProject(row);
    return projectId === undefined ? !row.mayWait : !live.has(projectId);
  });
  if (gone.length === 0) return 0;
  return database.execute('DELETE FROM annotation_queue_runs WHERE id = ANY ($1::uuid[])', [gone.map(({ id }) => id)]);
}

const runsAtOnce = 10_000;

/**
 * Removes the runs of a set from all queues of a workspace. If the set is large, looks up only the runs that are in
 * queues.
 *
 * @param runs result of `storeDeletionKeys`.
 */
export async function removeFromQueues(
  { clickhouse, database }: Deps,
  workspaceId: string,
  runs: string,
): Promise<void> {
  const remove = (found: readonly { readonly id: string }[]) =>
    database.execute(
      `DELETE FROM annotation_queue_runs WHERE run_id = ANY ($2::uuid[])
         AND queue_id IN (SELECT id FROM annotation_queues WHERE workspace_id = $1)`,
      [workspaceId, found.map(({ id }) => id)],
    );
  const first = await clickhouse.query<{ id: string }>({
    name: 'list-deleted-queue-runs',
    sql: `SELECT id FROM ${runs} LIMIT ${runsAtOnce}`,
  });
  if (first.length < runsAtOnce) return void (await remove(first));
  for (let after: string | undefined; ; ) {
    const candidates = await database.query<{ runId: string }>(
      `SELECT DISTINCT run_id AS "runId" FROM annotation_queue_runs
       WHERE queue_id IN (SELECT id FROM annotation_queues WHERE workspace_id = $1)
         AND run_id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000') ORDER BY run_id LIMIT $3`,
      [workspaceId, after ?? null, runsAtOnce],
    );
    if (candidates.length === 0) return;
    const found = await clickhouse.query<{ id: string }>({
      name: 'find-deleted-queue-runs',
      sql: `SELECT DISTINCT id FROM ${runs} WHERE id IN candidates`,
      externalTable: { name: 'candidates', structure: 'id UUID', rows: candidates.map(({ runId }) => [runId]) },
    });
    await remove(found);
    if (candidates.length < runsAtOnce) return;
    after = candidates.at(-1)?.runId;
  }
}
