/**
 * Runs and threads of annotation queues, as one user sees them. The rules for runs also apply to threads.
 *
 * Invariant: a run is completed when as many users as the queue asks for have completed it, and at most that many users
 * review it at the same time. In a queue with assigned reviewers it is completed when all of them have completed it.
 * Changes lock the row of the run in the queue, so two users cannot both become the last permitted reviewer.
 */
import { randomUUID } from 'node:crypto';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { requestKeepInWorkspace } from '../retention/request-changes.ts';
import type { ThreadKey } from '../runs/threads.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { removeGoneRuns } from './remove-gone-runs.ts';

/** Maximum number of runs per queue. */
const maxRuns = 10_000;

export const sections = ['needs_my_review', 'needs_others_review', 'completed'] as const;
export type Section = (typeof sections)[number];

/** A run or a thread in a queue, for a user. */
export interface QueueRun {
  readonly queue_run_id: string;
  /** Null for a thread. */
  readonly run_id: string | null;
  readonly added_at: string;
  readonly effective_added_at: string;
  readonly last_reviewed_time: string | null;
  readonly source_proposed_example_id: string | null;
  /** Ids of the users that have completed the run. */
  readonly completed_by: string[];
  /** Ids of the users that are reviewing the run. */
  readonly reserved_by: string[];
}

/** SQL: the reviewers of the queue `q`, without removed users. */
const assignedSql = `SELECT coalesce(array_agg(w.user_id), '{}') AS assigned FROM annotation_queue_reviewers AS w
  JOIN users AS u ON u.id = w.user_id WHERE w.queue_id = q.id AND u.removed_at IS NULL`;

/** SQL: whether the users in `completed_by` complete a run of the queue `q` with the reviewers `a.assigned`. */
const isCompleted = `CASE WHEN q.reviewer_access_mode = 'assigned'
  THEN cardinality(a.assigned) > 0 AND a.assigned <@ r.completed_by
  ELSE cardinality(r.completed_by) >= q.num_reviewers_per_item END`;

/** Parameters: queue, workspace, user. */
const viewSql = `SELECT i.id AS queue_run_id, i.run_id, i.project_id, i.thread_id, i.added_at, i.last_reviewed_time, i.source_proposed_example_id,
    coalesce(r.override_added_at, i.added_at) AS effective_added_at, i.position, r.completed_by, r.reserved_by,
    q.reviewer_access_mode = 'assigned' AND $3::uuid <> ALL (a.assigned) AS "isStranger",
    CASE WHEN ${isCompleted} THEN 'completed'
         WHEN $3::uuid = ANY (r.completed_by) THEN 'needs_others_review'
         WHEN q.reviewer_access_mode = 'assigned' THEN
           CASE WHEN $3::uuid = ANY (a.assigned) THEN 'needs_my_review' ELSE 'needs_others_review' END
         WHEN cardinality(array_remove(r.completed_by || r.reserved_by, $3::uuid)) >= q.num_reviewers_per_item
           THEN 'needs_others_review'
         ELSE 'needs_my_review' END AS section
  FROM annotation_queues AS q CROSS JOIN LATERAL (${assignedSql}) AS a
  JOIN annotation_queue_runs AS i ON i.queue_id = q.id
  CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(user_id) FILTER (WHERE completed_at IS NOT NULL), '{}') AS completed_by,
      coalesce(array_agg(user_id) FILTER (WHERE completed_at IS NULL AND q.enable_reservations
        AND reserved_at > now() - make_interval(mins => q.reservation_minutes)), '{}') AS reserved_by,
      max(override_added_at) FILTER (WHERE user_id = $3::uuid) AS override_added_at
    FROM annotation_reviews WHERE queue_run_id = i.id) AS r
  WHERE q.id = $1 AND q.workspace_id = $2`;

export interface OrderedQueueRun extends QueueRun {
  /** Orders runs with the same `effective_added_at`. */
  readonly position: number;
  readonly section: Section;
  /** Project of a thread; null for a run. */
  readonly project_id: string | null;
  readonly thread_id: string | null;
}

/** The runs and threads of a queue in the given sections, oldest first. */
export function listQueueRuns(
  database: Sql,
  caller: WorkspaceCaller,
  queueId: string,
  wanted: readonly Section[],
): Promise<OrderedQueueRun[]> {
  return database.query<OrderedQueueRun>(
    `SELECT queue_run_id, run_id, project_id, thread_id, added_at, effective_added_at, last_reviewed_time,
       source_proposed_example_id, completed_by, reserved_by, position, section
     FROM (${viewSql}) AS view WHERE section = ANY ($4::text[]) ORDER BY effective_added_at, position`,
    [queueId, caller.workspaceId, caller.userId, wanted],
  );
}

export interface NewQueueRun {
  readonly runId: string;
  readonly sourceProposedExampleId?: string | null | undefined;
}

/** A new row of a queue, in the response of the request that added it. */
export interface AddedQueueRun
  extends Pick<QueueRun, 'run_id' | 'added_at' | 'last_reviewed_time' | 'source_proposed_example_id'> {
  readonly id: string;
  readonly queue_id: string;
}

/**
 * Adds runs and threads to a queue, and requests that the given traces become longlived: all or none. Runs and threads
 * that are already in the queue do not change. A full queue first loses the runs that are no longer stored.
 *
 * @throws NOT_FOUND; QUEUE_FULL; errors of the stores.
 */
export async function addQueueRuns(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Database },
  workspaceId: string,
  queueId: string,
  items: readonly (NewQueueRun | ThreadKey)[],
  tracesToKeep: readonly string[],
): Promise<AddedQueueRun[]> {
  const insert = () => insertQueueRuns(database, workspaceId, queueId, items, tracesToKeep);
  return insert().catch(async (error: unknown) => {
    if (!isRunlakeError(error) || error.code !== 'QUEUE_FULL') throw error;
    if ((await removeGoneRuns({ clickhouse, database }, workspaceId, queueId)) === 0) throw error;
    return insert();
  });
}

async function insertQueueRuns(
  database: Database,
  workspaceId: string,
  queueId: string,
  items: readonly (NewQueueRun | ThreadKey)[],
  tracesToKeep: readonly string[],
): Promise<AddedQueueRun[]> {
  return database.transaction(async (tx) => {
    await lockQueue(tx, workspaceId, queueId);
    const values = (read: (item: Partial<NewQueueRun & ThreadKey>) => string | null | undefined) =>
      items.map((item) => read(item) ?? null);
    const keys = [values(({ runId }) => runId), values((item) => item.projectId), values(({ threadId }) => threadId)];
    await tx.execute(
      `INSERT INTO annotation_queue_runs (id, queue_id, run_id, project_id, thread_id, source_proposed_example_id)
       SELECT row_id, $1, run_id, project_id, thread_id, example_id
       FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::uuid[])
         WITH ORDINALITY AS added (run_id, project_id, thread_id, row_id, example_id, position)
       ORDER BY position ON CONFLICT DO NOTHING`,
      [queueId, ...keys, values(() => randomUUID()), values((item) => item.sourceProposedExampleId)],
    );
    const [counted] = await tx.query<{ count: number }>(
      'SELECT count(*) AS count FROM annotation_queue_runs WHERE queue_id = $1',
      [queueId],
    );
    if (counted!.count > maxRuns) throw runlakeError('QUEUE_FULL', { limit: maxRuns, what: 'runs' });
    if (tracesToKeep.length > 0) await requestKeepInWorkspace(tx, workspaceId, tracesToKeep);
    return tx.query<AddedQueueRun>(
      `SELECT id, queue_id, run_id, added_at, last_reviewed_time, source_proposed_example_id
       FROM annotation_queue_runs WHERE queue_id = $1 AND (run_id = ANY ($2::uuid[])
         OR (project_id, thread_id) IN (SELECT * FROM unnest($3::uuid[], $4::text[]))) ORDER BY position`,
      [queueId, ...keys],
    );
  });
}

/** Changes a run in a queue. @throws NOT_FOUND */
export async function updateQueueRun(
  database: Database,
  workspaceId: string,
  { queueId, queueRunId }: { readonly queueId: string; readonly queueRunId: string },
  change: { readonly addedAt?: string | null | undefined; readonly lastReviewedTime?: string | null | undefined },
): Promise<void> {
  const changed = await database.execute(
    `UPDATE annotation_queue_runs AS i SET added_at = coalesce($4, added_at),
       last_reviewed_time = coalesce($5, last_reviewed_time)
     FROM annotation_queues AS q WHERE q.id = i.queue_id AND i.id = $1 AND q.id = $2 AND q.workspace_id = $3`,
    [queueRunId, queueId, workspaceId, change.addedAt ?? null, change.lastReviewedTime ?? null],
  );
  if (changed === 0) throw createRunNotFoundError();
}

/**
 * Removes a run from a queue. `queueRunId` is its id in the queue, or the id of the run, which the Python SDK sends.
 *
 * @throws NOT_FOUND
 */
export async function deleteQueueRun(
  database: Database,
  workspaceId: string,
  { queueId, queueRunId }: { readonly queueId: string; readonly queueRunId: string },
): Promise<void> {
  const deleted = await database.execute(
    `DELETE FROM annotation_queue_runs AS i USING annotation_queues AS q
     WHERE q.id = i.queue_id AND $1 IN (i.id, i.run_id) AND q.id = $2 AND q.workspace_id = $3`,
    [queueRunId, queueId, workspaceId],
  );
  if (deleted === 0) throw createRunNotFoundError();
}

/**
 * Removes rows of a queue: either those with the given ids, or all except `keep`.
 *
 * @throws NOT_FOUND for an unknown queue.
 */
export async function deleteQueueRuns(
  database: Database,
  workspaceId: string,
  queueId: string,
  which: { readonly only: readonly string[] } | { readonly keep: readonly string[] },
): Promise<void> {
  await database.transaction(async (tx) => {
    await lockQueue(tx, workspaceId, queueId);
    const [condition, ids] =
      'only' in which ? ['id = ANY ($2::uuid[])', which.only] : ['id <> ALL ($2::uuid[])', which.keep];
    await tx.execute(`DELETE FROM annotation_queue_runs WHERE queue_id = $1 AND ${condition}`, [queueId, ids]);
  });
}

export const reviewStatuses = ['in_progress', 'completed'] as const;
type ReviewStatus = (typeof reviewStatuses)[number];

/** An absent field stays unchanged; a null status withdraws the review. */
interface ReviewChange {
  readonly status?: ReviewStatus | null | undefined;
  readonly overrideAddedAt?: string | null | undefined;
}

/**
 * Sets the caller's review of a run.
 *
 * @throws NOT_FOUND; RUN_RESERVED if enough other users are reviewing the run or have completed it; REVIEWER_NOT_ASSIGNED.
 */
export async function setReview(
  database: Database,
  caller: WorkspaceCaller,
  queueRunId: string,
  { status, overrideAddedAt }: ReviewChange,
): Promise<void> {
  await database.transaction(async (tx) => {
    const [item] = await tx.query<{ queueId: string }>(
      `SELECT queue_id AS "queueId" FROM annotation_queue_runs WHERE id = $1
         AND queue_id IN (SELECT id FROM annotation_queues WHERE workspace_id = $2) FOR UPDATE`,
      [queueRunId, caller.workspaceId],
    );
    if (!item) throw createRunNotFoundError();
    if (status) await requireReviewAccess(tx, caller, { queueId: item.queueId, queueRunId }, status);
    await tx.execute(`INSERT INTO annotation_reviews (queue_run_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, [
      queueRunId,
      caller.userId,
    ]);
    if (status !== undefined) {
      await tx.execute(
        `UPDATE annotation_reviews SET reserved_at = CASE WHEN $3 = 'in_progress' THEN now() END,
           completed_at = CASE WHEN $3 = 'completed' THEN now() END WHERE queue_run_id = $1 AND user_id = $2`,
        [queueRunId, caller.userId, status],
      );
    }
    if (status === 'completed') {
      await tx.execute('UPDATE annotation_queue_runs SET last_reviewed_time = now() WHERE id = $1', [queueRunId]);
    }
    if (overrideAddedAt !== undefined) {
      await tx.execute(
        'UPDATE annotation_reviews SET override_added_at = $3 WHERE queue_run_id = $1 AND user_id = $2',
        [queueRunId, caller.userId, overrideAddedAt],
      );
    }
  });
}

/** Reads the caller's review of a run, and whether the run is completed. @throws NOT_FOUND */
export async function readReview(
  database: Sql,
  caller: WorkspaceCaller,
  queueRunId: string,
): Promise<{ status: 'viewed' | 'completed' | null; override_added_at: string | null; is_archived: boolean }> {
  const [found] = await database.query<{
    status: 'viewed' | 'completed' | null;
    override_added_at: string | null;
    is_archived: boolean;
  }>(
    `SELECT CASE WHEN own.completed_at IS NOT NULL THEN 'completed' WHEN own.reserved_at IS NOT NULL THEN 'viewed' END AS status,
       own.override_added_at, ${isCompleted} AS is_archived
     FROM annotation_queue_runs AS i JOIN annotation_queues AS q ON q.id = i.queue_id
     CROSS JOIN LATERAL (${assignedSql}) AS a
     CROSS JOIN LATERAL (SELECT coalesce(array_agg(user_id), '{}') AS completed_by FROM annotation_reviews
       WHERE queue_run_id = i.id AND completed_at IS NOT NULL) AS r
     LEFT JOIN annotation_reviews AS own ON own.queue_run_id = i.id AND own.user_id = $3
     WHERE i.id = $1 AND q.workspace_id = $2`,
    [queueRunId, caller.workspaceId, caller.userId],
  );
  if (!found) throw createRunNotFoundError();
  return found;
}

async function requireReviewAccess(
  tx: Sql,
  caller: WorkspaceCaller,
  { queueId, queueRunId }: { readonly queueId: string; readonly queueRunId: string },
  status: ReviewStatus,
): Promise<void> {
  const [view] = await tx.query<{ section: Section; isCompletedByCaller: boolean; isStranger: boolean }>(
    `SELECT section, $3::uuid = ANY (completed_by) AS "isCompletedByCaller", "isStranger" FROM (${viewSql} AND i.id = $4) AS view`,
    [queueId, caller.workspaceId, caller.userId, queueRunId],
  );
  if (status === 'completed' && view?.isCompletedByCaller) return;
  if (view?.isStranger) throw runlakeError('REVIEWER_NOT_ASSIGNED', {});
  if (view?.section !== 'needs_my_review') throw runlakeError('RUN_RESERVED', {});
}

export async function lockQueue(tx: Sql, workspaceId: string, queueId: string): Promise<void> {
  const [found] = await tx.query('SELECT FROM annotation_queues WHERE id = $1 AND workspace_id = $2 FOR UPDATE', [
    queueId,
    workspaceId,
  ]);
  if (!found) throw runlakeError('NOT_FOUND', { what: 'Annotation queue' });
}

const createRunNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Run of the queue' });
