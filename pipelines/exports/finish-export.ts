import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { enqueueExport } from './enqueue.ts';
import type { ExportDeps } from './export-deps.ts';
import { type ExportStatus, statesBefore } from './export-states.ts';
import { type ExportWithProgress, readExport } from './read-export.ts';

interface ExportEnd {
  readonly to: Exclude<ExportStatus, 'CREATED' | 'RUNNING'>;
  /** Shown to the owner of the export. */
  readonly reason: string | null;
}

/** State that the unfinished export runs get, by the final state of the export. */
const runsBecome = { CANCELLED: 'CANCELLED', FAILED: 'CANCELLED', TIMEDOUT: 'TIMEDOUT', COMPLETED: undefined } as const;

/**
 * Ends an export and its unfinished export runs if the transition table allows it, and queues the exports that wait for
 * its slot in the workspace.
 *
 * @returns whether this call ended it.
 */
export async function finishExport(
  deps: Pick<ExportDeps, 'database' | 'now' | 'jobs' | 'logger'>,
  exportId: string,
  end: ExportEnd,
): Promise<boolean> {
  const finished = await deps.database.transaction((tx) => endExport(tx, exportId, end, deps.now()));
  if (finished !== undefined) await enqueueWaiting(deps, finished);
  return finished !== undefined;
}

/**
 * {@link finishExport} inside a transaction, without queueing. @returns the workspace id; undefined if the transition
 * is not allowed.
 */
export async function endExport(
  tx: Sql,
  exportId: string,
  { to, reason }: ExportEnd,
  now: Date,
): Promise<string | undefined> {
  const at = now.toISOString();
  const [ended] = await tx.query<{ workspaceId: string }>(
    `UPDATE bulk_exports SET status = $2, status_reason = $3, finished_at = $4, updated_at = $4,
       manifest_at = CASE WHEN $2 = 'COMPLETED' THEN $4::timestamptz END
     WHERE id = $1 AND status = ANY (CASE WHEN interval_hours IS NULL THEN $5::text[] ELSE $6::text[] END)
     RETURNING workspace_id AS "workspaceId"`,
    [exportId, to, reason, at, statesBefore('export', to), statesBefore('schedule', to)],
  );
  if (ended === undefined) return undefined;
  const runs = runsBecome[to];
  if (runs !== undefined) {
    await tx.execute(
      `UPDATE bulk_export_runs SET status = $2, finished_at = $3, updated_at = $3
       WHERE bulk_export_id = $1 AND status = ANY ($4)`,
      [exportId, runs, at, statesBefore('run', runs)],
    );
  }
  return ended.workspaceId;
}

/** Queues the oldest exports of a workspace that wait for a slot. */
export async function enqueueWaiting(
  deps: Pick<ExportDeps, 'database' | 'jobs' | 'logger'>,
  workspaceId: string,
): Promise<void> {
  const waiting = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_exports WHERE workspace_id = $1 AND status = 'CREATED' ORDER BY created_at, id LIMIT 2`,
    [workspaceId],
  );
  for (const { id } of waiting) await enqueueExport(deps, id);
}

/**
 * Cancels an export or a schedule, and its unfinished export runs; workers notice within two seconds. Exports that a
 * schedule has already spawned continue. Cancelling a cancelled export has no effect.
 *
 * @throws NOT_FOUND; EXPORT_FINISHED if the export ended in another state.
 */
export async function cancelExport(
  deps: ExportDeps,
  workspaceId: string,
  exportId: string,
): Promise<ExportWithProgress> {
  const { database } = deps;
  await readExport(database, workspaceId, exportId);
  await finishExport(deps, exportId, { to: 'CANCELLED', reason: 'It was cancelled.' });
  const now = await readExport(database, workspaceId, exportId);
  if (now.status !== 'CANCELLED') throw runlakeError('EXPORT_FINISHED', { status: now.status });
  return now;
}
