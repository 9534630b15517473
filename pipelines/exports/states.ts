/**
 * The transitions between the states of exports and export runs, and the functions that end an export.
 *
 * Invariant: the rows alone determine which work is due. Queues only wake workers. Therefore a failure to queue is only
 * logged, and the sweep (`scheduler.ts`) queues the due work.
 */
import type { Sql } from '../../infra/postgres/database.ts';
import { type ClockDeps, type ExportDeps, readClock } from './export-deps.ts';
import type { ExportStatus } from './record.ts';

/**
 * The kinds of objects that have a state. A schedule is an export that spawns other exports: it is RUNNING from its
 * creation and has no export runs of its own.
 */
export type StatefulObject = 'export' | 'schedule' | 'run';

export interface Transition {
  readonly what: StatefulObject;
  readonly from: ExportStatus;
  readonly to: ExportStatus;
  readonly when: string;
}

/** All allowed transitions. SQL statements that change a status take the allowed previous states from this table. */
export const transitions: readonly Transition[] = [
  {
    what: 'export',
    from: 'CREATED',
    to: 'RUNNING',
    when: 'earlier events are stored, and its workspace is below its limit',
  },
  { what: 'export', from: 'CREATED', to: 'CANCELLED', when: 'its owner cancels it, or its workspace was deleted' },
  { what: 'export', from: 'CREATED', to: 'FAILED', when: 'its project was deleted' },
  { what: 'export', from: 'RUNNING', to: 'COMPLETED', when: 'every run is COMPLETED and the manifest is written' },
  { what: 'export', from: 'RUNNING', to: 'FAILED', when: 'a run is FAILED, or the manifest can never be written' },
  { what: 'export', from: 'RUNNING', to: 'CANCELLED', when: 'its owner cancels it, or its workspace was deleted' },
  { what: 'export', from: 'RUNNING', to: 'TIMEDOUT', when: 'it exceeds the timeout of an export' },
  { what: 'schedule', from: 'RUNNING', to: 'CANCELLED', when: 'its owner cancels it, or its workspace was deleted' },
  { what: 'schedule', from: 'RUNNING', to: 'FAILED', when: 'its project was deleted' },
  { what: 'run', from: 'CREATED', to: 'RUNNING', when: 'a worker claims it' },
  { what: 'run', from: 'CREATED', to: 'CANCELLED', when: 'its export is cancelled or failed' },
  { what: 'run', from: 'CREATED', to: 'TIMEDOUT', when: 'its export is out of time' },
  { what: 'run', from: 'RUNNING', to: 'COMPLETED', when: 'its last file is recorded' },
  { what: 'run', from: 'RUNNING', to: 'FAILED', when: 'its retries are used up, or its error is not retryable' },
  { what: 'run', from: 'RUNNING', to: 'CANCELLED', when: 'its export is cancelled or failed' },
  { what: 'run', from: 'RUNNING', to: 'TIMEDOUT', when: 'its export is out of time' },
];

/** Returns the states from which `what` may change to `to`; empty if there is no such transition. */
export function listPreviousStates(what: StatefulObject, to: ExportStatus): ExportStatus[] {
  return transitions
    .filter((allowedTransition) => allowedTransition.what === what && allowedTransition.to === to)
    .map((move) => move.from);
}

/** Whether the state is final. */
export function isFinished(status: ExportStatus): boolean {
  return status !== 'CREATED' && status !== 'RUNNING';
}

interface ExportOutcome {
  readonly to: Exclude<ExportStatus, 'CREATED' | 'RUNNING'>;
  /** Reason that is shown to the owner of the export. */
  readonly reason: string | null;
}

/** State that the unfinished export runs of an export get when the export ends, by the final state of the export. */
const runStatusByExportStatus = {
  CANCELLED: 'CANCELLED',
  FAILED: 'CANCELLED',
  TIMEDOUT: 'TIMEDOUT',
  COMPLETED: undefined,
} as const;

/**
 * Ends an export and its unfinished export runs if the transition table allows it, and queues exports that wait for the
 * slot that becomes free in the workspace.
 *
 * @returns whether this call ended the export.
 */
export async function finishExport(
  deps: ClockDeps & QueueDeps,
  exportId: string,
  end: ExportOutcome,
): Promise<boolean> {
  const finished = await deps.database.transaction(async (tx) =>
    endExport(tx, exportId, end, await readClock(deps, tx)),
  );
  if (finished !== undefined) await enqueueWaitingExports(deps, finished);
  return finished !== undefined;
}

/**
 * Ends an export like {@link finishExport}, but in the transaction of the caller and without queuing anything.
 *
 * @returns the workspace id; undefined if the transition is not allowed.
 */
export async function endExport(
  tx: Sql,
  exportId: string,
  { to, reason }: ExportOutcome,
  now: Date,
): Promise<string | undefined> {
  const at = now.toISOString();
  const [ended] = await tx.query<{ workspaceId: string }>(
    `UPDATE bulk_exports SET status = $2, status_reason = $3, finished_at = $4, updated_at = $4,
       manifest_at = CASE WHEN $2 = 'COMPLETED' THEN $4::timestamptz END
     WHERE id = $1 AND status = ANY (CASE WHEN interval_hours IS NULL THEN $5::text[] ELSE $6::text[] END)
     RETURNING workspace_id AS "workspaceId"`,
    [exportId, to, reason, at, listPreviousStates('export', to), listPreviousStates('schedule', to)],
  );
  if (ended === undefined) return undefined;
  const runs = runStatusByExportStatus[to];
  if (runs !== undefined) {
    await tx.execute(
      `UPDATE bulk_export_runs SET status = $2, finished_at = $3, updated_at = $3
       WHERE bulk_export_id = $1 AND status = ANY ($4)`,
      [exportId, runs, at, listPreviousStates('run', runs)],
    );
  }
  return ended.workspaceId;
}

/** Queues the oldest exports of a workspace that are waiting for a slot. */
export async function enqueueWaitingExports(
  deps: Pick<ExportDeps, 'database' | 'jobs' | 'logger'>,
  workspaceId: string,
): Promise<void> {
  const waiting = await deps.database.query<{ id: string }>(
    `SELECT id FROM bulk_exports WHERE workspace_id = $1 AND status = 'CREATED' ORDER BY created_at, id LIMIT 2`,
    [workspaceId],
  );
  for (const { id } of waiting) await enqueueExport(deps, id);
}

type QueueDeps = Pick<ExportDeps, 'jobs' | 'logger'>;

/** Queues a job that coordinates an export. The job id is the export id, so at most one job per export is queued. */
export async function enqueueExport({ jobs, logger }: QueueDeps, exportId: string): Promise<void> {
  await jobs
    .enqueue('coordinate-export', { export_id: exportId }, { jobId: exportId })
    .catch((err) => logger.warn({ err, exportId }, 'cannot queue a bulk export; the next sweep queues it'));
}

/**
 * Queues a job for an export run, at once or after `delayMs`. The job id contains the fencing token, so that a job for
 * the next attempt is accepted while the job of the previous attempt is still ending.
 */
export async function enqueueRun(
  { jobs, logger }: QueueDeps,
  { id, fence }: { readonly id: string; readonly fence: number },
  delayMs = 0,
): Promise<void> {
  await jobs
    .enqueue('export-run', { run_id: id }, { jobId: `${id}/${fence}`, delayMs })
    .catch((err) => logger.warn({ err, runId: id }, 'cannot queue an export run; the next sweep queues it'));
}
