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

/** A run that was added later and is not stored may still be in the event log. */
const waitInterval = `interval '1 day'`;

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
    `SELECT id, run_id AS "runId", project_id AS "projectId", added_at > now() - ${waitInterval} AS "mayWait"
     FROM annotation_queue_runs WHERE queue_id = $1`,
    [queueId],
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
 * Removes the runs of a set from all queues of a workspace. Looks up only the runs that are in queues.
 *
 * @param runs result of `storeDeletionKeys`.
 */
export async function removeFromQueues(
  { clickhouse, database }: Deps,
  workspaceId: string,
  runs: string,
): Promise<void> {
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
    await database.execute(
      `DELETE FROM annotation_queue_runs WHERE run_id = ANY ($2::uuid[])
         AND queue_id IN (SELECT id FROM annotation_queues WHERE workspace_id = $1)`,
      [workspaceId, found.map(({ id }) => id)],
    );
    if (candidates.length < runsAtOnce) return;
    after = candidates.at(-1)?.runId;
  }
}
