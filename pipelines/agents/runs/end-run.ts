/**
 * Writes the final state of a run.
 *
 * Invariant: it is written once, by whoever holds the lease. `agents.end_run`, in one statement,
 *
 *   1. locks the thread;
 *   2. ends the run, if the lease is this one still; else nothing happens;
 *   3. unless it is rolled back writes what clients see of the thread: values, interrupts, error;
 *   4. settles the thread's status, and tells who waits for the thread.
 *
 * In its transaction, where there is more to do: the checkpoints of a run that is rolled back are taken away, as the row of the thread
 * has not been touched by the run so far; and the webhook is noted. The end of the stream is not in the log then: `end_published` is
 * false until it is.
 */
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { rollbackCheckpoints } from '../checkpoints/rollback-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { searchableText } from '../threads/searchable-text.ts';
import type { Interrupt } from '../threads/thread.ts';
import { noteWebhook } from '../webhooks/note-webhook.ts';
import type { ClaimedRun, EndedRow, EndedRun, RunFailure } from './run-row.ts';

export interface RunResult {
  readonly status: EndedRun['status'];
  /** JSON text of the state at the end. */
  readonly values?: string;
  readonly next?: readonly string[];
  readonly interrupts?: Readonly<Record<string, readonly Interrupt[]>>;
  readonly error?: RunFailure;
  readonly rollback?: boolean;
  /** The log did not take all events. */
  readonly eventsMissing?: boolean;
}

/** @returns undefined where the lease was lost: another process has the run, or it is gone. */
export async function endRun(database: Database, run: ClaimedRun, result: RunResult): Promise<EndedRun | undefined> {
  const { deploymentId, threadId, runId } = run;
  const { rollback = false } = result;
  const resting = restStatus(result);
  async function end(sql: Sql): Promise<EndedRun | undefined> {
    const row = await writeEnd(sql, run, result, resting);
    if (row === undefined) return undefined;
    if (rollback) await rollbackCheckpoints(sql, threadKey(deploymentId, threadId), runId);
    const ended = endedOf(run, row, result, resting);
    const error = ended.error && `${ended.error.error}: ${ended.error.message}`;
    await noteWebhook(sql, { deploymentId, runId, webhook: ended.kwargs.webhook, values: ended.values, error });
    return ended;
  }
  // One statement is a transaction by itself.
  return rollback || run.kwargs.webhook !== undefined ? database.transaction(end) : end(database);
}

/** What whoever holds a run does not know of its end. */
type NewOfEnd = Pick<EndedRow, 'multitask_strategy' | 'created_at' | 'ended_at'>;

function endedOf(
  { leaseToken: _, baseCheckpointId: __, alone: ___, ...run }: ClaimedRun,
  row: NewOfEnd,
  { status, error, values, interrupts = {}, rollback = false, eventsMissing = false }: RunResult,
  resting: string,
): EndedRun {
  return {
    ...run,
    status,
    ...(error && { error }),
    ...(!rollback && values !== undefined && { values }),
    multitaskStrategy: row.multitask_strategy,
    createdAt: row.created_at,
    endedAt: row.ended_at,
    removed: rollback,
    eventsMissing,
    ...(!rollback && resting === 'interrupted' && { interrupted: true, interrupts }),
  };
}

async function writeEnd(
  sql: Sql,
  { deploymentId, threadId, runId, leaseToken }: ClaimedRun,
  { status, error, rollback = false, values, interrupts, eventsMissing = false }: RunResult,
  resting: string,
): Promise<NewOfEnd | undefined> {
  const [row] = await sql.query<NewOfEnd>(
    `SELECT multitask_strategy, created_at, ended_at
     FROM agents.end_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    [
      deploymentId,
      threadId,
      runId,
      leaseToken,
      status,
      error ?? null,
      rollback,
      resting,
      values ?? null,
      values === undefined ? null : searchableText(values),
      interrupts === undefined ? null : JSON.stringify(interrupts),
      eventsMissing,
    ],
    { name: 'agents_end_run' },
  );
  return row;
}

function restStatus({ status, next = [], interrupts = {} }: RunResult): 'idle' | 'interrupted' | 'error' {
  if (status === 'error' || status === 'timeout') return 'error';
  return next.length > 0 || Object.values(interrupts).some((list) => list.length > 0) ? 'interrupted' : 'idle';
}
