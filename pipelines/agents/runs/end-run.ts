/**
 * Writes the final state of a run.
 *
 * Invariant: it is written once, by the process that holds the lease, and a cancel that was requested before is carried out.
 * `agents.end_run`, in one statement,
 *
 *   1. locks the thread; cancels lock it too, so a cancel either is in the row by now or will find an ended run;
 *   2. ends the run if the token is still its lease, with the status that follows from `cancel_action` and the outcome;
 *   3. for a rollback deletes the checkpoints of the run, otherwise writes values, interrupts and error to the row of
 *      the thread;
 *   4. updates the status of the thread, and notifies executors if another run of it is pending.
 *
 * If the run has a webhook or large final values (`final-values.ts`), the transaction also stores these.
 * `end_published` is false until the end of the stream is in the event log. If the process crashes before,
 * `publishLateEnds` publishes the end.
 */
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { searchableText } from '../threads/searchable-text.ts';
import type { Interrupt } from '../threads/thread.ts';
import { recordWebhook } from '../webhooks/record-webhook.ts';
import { fitsEndEvent, storeFinalValues } from './final-values.ts';
import type { ClaimedRun, EndedRow, EndedRun, RunFailure } from './run-row.ts';

export interface RunResult {
  /** Status of the run unless a cancel was requested. */
  readonly status: EndedRun['status'];
  /** JSON text of the final state. */
  readonly values?: string;
  readonly next?: readonly string[];
  readonly interrupts?: Readonly<Record<string, readonly Interrupt[]>>;
  readonly error?: RunFailure;
  /** Whether the event log lacks events of the run. */
  readonly eventsMissing?: boolean;
}

/** @returns undefined if the lease was lost: another process has the run, or it was deleted. Then nothing is written. */
export async function endRun(database: Database, run: ClaimedRun, result: RunResult): Promise<EndedRun | undefined> {
  const { deploymentId, runId } = run;
  const resting = restStatus(result);
  const isLarge = !fitsEndEvent(run.kwargs, result.values) || !fitsEndEvent(run.kwargs, interruptsText(result));
  async function end(sql: Sql): Promise<EndedRun | undefined> {
    const row = await writeEnd(sql, run, result, resting);
    if (row === undefined) return undefined;
    const ended = toEnded(run, row, result, resting);
    const error = ended.error && `${ended.error.error}: ${ended.error.message}`;
    if (isLarge && !ended.removed) await storeFinalValues(sql, ended);
    await recordWebhook(sql, { deploymentId, runId, webhook: ended.kwargs.webhook, values: ended.values, error });
    return ended;
  }
  // Without them one statement is enough, which is a transaction by itself.
  return run.kwargs.webhook !== undefined || isLarge ? database.transaction(end) : end(database);
}

/** The columns that `agents.end_run` sets or reads. */
type WrittenEnd = Pick<EndedRow, 'status' | 'error' | 'removed' | 'multitask_strategy' | 'created_at' | 'ended_at'>;

function toEnded(
  { leaseToken: _, baseCheckpointId: __, alone: ___, ...run }: ClaimedRun,
  row: WrittenEnd,
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
): Promise<WrittenEnd | undefined> {
  const { status, error, values, eventsMissing = false } = result;
  const [row] = await sql.query<WrittenEnd>(
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
