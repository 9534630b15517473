/**
 * Writes the final state of a run.
 *
 * Invariant: it is written once, by the holder of the lease, and what was asked of the run until then is carried out.
 * `agents.end_run`, in one statement,
 *
 *   1. locks the thread; cancels lock it too, so a cancel is either in the row now or finds an ended run;
 *   2. ends the run if the token is still its lease, with the status that `cancel_action` and the outcome give;
 *   3. if a rollback was asked for, deletes the checkpoints of the run; else writes what clients see of the thread: values,
 *      interrupts, error;
 *   4. updates the thread's status, and notifies if another run is due.
 *
 * A run with a webhook ends in a transaction that also records the webhook; one with large final values in a transaction that also stores
 * these (`final-values.ts`). `end_published` is false until the end of the stream is in
 * the log; a crash before that leaves the end to `publishLateEnds`.
 */
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { searchableText } from '../threads/searchable-text.ts';
import type { Interrupt } from '../threads/thread.ts';
import { noteWebhook } from '../webhooks/note-webhook.ts';
import { fitsEndEvent, storeFinalValues } from './final-values.ts';
import type { ClaimedRun, EndedRow, EndedRun, RunFailure } from './run-row.ts';

export interface RunResult {
  /** Of the run if nothing was asked of it. */
  readonly status: EndedRun['status'];
  /** JSON text of the state at the end. */
  readonly values?: string;
  readonly next?: readonly string[];
  readonly interrupts?: Readonly<Record<string, readonly Interrupt[]>>;
  readonly error?: RunFailure;
  /** The log did not take all events. */
  readonly eventsMissing?: boolean;
}

/** @returns undefined where the lease was lost: another process has the run, or it is gone. */
export async function endRun(database: Database, run: ClaimedRun, result: RunResult): Promise<EndedRun | undefined> {
  const { deploymentId, runId } = run;
  const resting = restStatus(result);
  const isLarge = !fitsEndEvent(run.kwargs, result.values) || !fitsEndEvent(run.kwargs, interruptsText(result));
  async function end(sql: Sql): Promise<EndedRun | undefined> {
    const row = await writeEnd(sql, run, result, resting);
    if (row === undefined) return undefined;
    const ended = endedOf(run, row, result, resting);
    const error = ended.error && `${ended.error.error}: ${ended.error.message}`;
    if (isLarge && !ended.removed) await storeFinalValues(sql, ended);
    await noteWebhook(sql, { deploymentId, runId, webhook: ended.kwargs.webhook, values: ended.values, error });
    return ended;
  }
  // One statement is a transaction by itself.
  return run.kwargs.webhook !== undefined || isLarge ? database.transaction(end) : end(database);
}

/** What the statement decides or reads. */
type NewOfEnd = Pick<EndedRow, 'status' | 'error' | 'removed' | 'multitask_strategy' | 'created_at' | 'ended_at'>;

function endedOf(
  { leaseToken: _, baseCheckpointId: __, alone: ___, ...run }: ClaimedRun,
  row: NewOfEnd,
  { values, interrupts = {}, eventsMissing = false }: RunResult,
  resting: string,
): EndedRun {
  return {
    ...run,
    status: row.status,
    ...(row.error && { error: row.error }),
    ...(!row.removed && values !== undefined && { values }),
    multitaskStrategy: row.multitask_strategy,
    createdAt: row.created_at,
    endedAt: row.ended_at,
    removed: row.removed,
    eventsMissing,
    ...(!row.removed && resting === 'interrupted' && { interrupted: true, interrupts }),
  };
}

async function writeEnd(
  sql: Sql,
  { deploymentId, threadId, runId, leaseToken }: ClaimedRun,
  result: RunResult,
  resting: string,
): Promise<NewOfEnd | undefined> {
  const { status, error, values, eventsMissing = false } = result;
  const [row] = await sql.query<NewOfEnd>(
    `SELECT status, error, removed, multitask_strategy, created_at, ended_at
     FROM agents.end_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    [
      deploymentId,
      threadId,
      runId,
      leaseToken,
      status,
      error ?? null,
      resting,
      values ?? null,
      values === undefined ? null : searchableText(values),
      interruptsText(result) ?? null,
      eventsMissing,
    ],
    { name: 'agents_end_run' },
  );
  return row;
}

function interruptsText({ interrupts }: RunResult): string | undefined {
  return interrupts && JSON.stringify(interrupts);
}

function restStatus({ status, next = [], interrupts = {} }: RunResult): 'idle' | 'interrupted' | 'error' {
  if (status === 'error' || status === 'timeout') return 'error';
  return next.length > 0 || Object.values(interrupts).some((list) => list.length > 0) ? 'interrupted' : 'idle';
}
