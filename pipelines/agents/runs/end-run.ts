/**
 * Writes the final state of a run.
 *
 * Invariant: it is written once, by whoever holds the lease. One transaction
 *
 *   1. locks the thread;
 *   2. ends the run, if the lease is this one still; else nothing happens;
 *   3. where it is rolled back, takes its checkpoints away; the row of the thread has not been touched by the run so far;
 *   4. else writes what clients see of the thread: values, interrupts, error;
 *   5. settles the thread's status, and tells who waits for the thread.
 *
 * The end of the stream is not in the log then: `end_published` is false until it is.
 */
import type { Database } from '../../../infra/postgres/database.ts';
import { rollbackCheckpoints } from '../checkpoints/rollback-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { searchableText } from '../threads/searchable-text.ts';
import type { Interrupt } from '../threads/thread.ts';
import { noteWebhook } from '../webhooks/note-webhook.ts';
import { lockThread, settleThreadStatus } from './lock-thread.ts';
import { type ClaimedRun, type EndedRow, type EndedRun, endedColumns, type RunFailure, toEndedRun } from './run-row.ts';

export type { EndedRun } from './run-row.ts';

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
  const { organizationId, threadId, runId, leaseToken } = run;
  return database.transaction(async (tx) => {
    if ((await lockThread(tx, organizationId, threadId)) === undefined) return undefined;
    const [row] = await tx.query<EndedRow>(
      `UPDATE agents.runs run SET status = $4, error = $5, removed = $6, events_missing = $7,
         ended_at = clock_timestamp(), updated_at = clock_timestamp(), end_published = false
       WHERE organization_id = $1 AND run_id = $2 AND lease_token = $3 AND status = 'running'
       RETURNING ${endedColumns}`,
      [
        organizationId,
        runId,
        leaseToken,
        result.status,
        result.error ?? null,
        result.rollback ?? false,
        result.eventsMissing ?? false,
      ],
      { name: 'agents_end_run' },
    );
    if (row === undefined) return undefined;
    if (result.rollback) await rollbackCheckpoints(tx, threadKey(organizationId, threadId), runId);
    else {
      const { values, interrupts } = result;
      await tx.execute(
        `UPDATE agents.threads SET rest_status = $3, values = coalesce($4::json, values), interrupts = coalesce($5::json, interrupts),
           searchable_values = CASE WHEN $4::json IS NULL THEN searchable_values ELSE $6::jsonb END,
           error = $7::json, state_updated_at = clock_timestamp()
         WHERE organization_id = $1 AND thread_id = $2`,
        [
          organizationId,
          threadId,
          restStatus(result),
          values ?? null,
          interrupts === undefined ? null : JSON.stringify(interrupts),
          values === undefined ? null : searchableText(values),
          result.error ?? null,
        ],
        { name: 'agents_note_state' },
      );
    }
    await settleThreadStatus(tx, organizationId, threadId);
    const interrupted = !result.rollback && restStatus(result) === 'interrupted';
    const ended = {
      ...toEndedRun(row, result.rollback ? undefined : result.values),
      ...(interrupted && { interrupted, interrupts: result.interrupts ?? {} }),
    };
    await noteWebhook(tx, {
      organizationId,
      runId,
      webhook: ended.kwargs.webhook,
      values: ended.values,
      error: ended.error && `${ended.error.error}: ${ended.error.message}`,
    });
    await tx.execute("SELECT pg_notify('agent_runs', '')");
    return ended;
  });
}

function restStatus({ status, next = [], interrupts = {} }: RunResult): 'idle' | 'interrupted' | 'error' {
  if (status === 'error' || status === 'timeout') return 'error';
  return next.length > 0 || Object.values(interrupts).some((list) => list.length > 0) ? 'interrupted' : 'idle';
}
