/**
 * Writes the final state of a run.
 *
 * Invariant: the process that holds the lease writes the final state once, and a cancel that was requested before that
 * takes effect.
 * `agents.end_run`, in one statement,
 *
 *   1. locks the thread; cancels lock it too, so a concurrent cancel is either already in the row or sees the run as
 *      ended;
 *   2. ends the run if the token is still its lease, with the status that follows from `cancel_action` and the outcome;
 *   3. for a rollback deletes the checkpoints of the run, otherwise writes values, interrupts and error to the row of
 *      the thread;
 *   4. updates the status of the thread, and notifies executors if another run of it is pending.
 *
 * A trigger counts each run that ends after an attempt, however it ends, for the usage of the deployment.
 *
 * If the run has a webhook or large final values (`published-ends.ts`), the transaction also stores these.
 * `end_published` is false until the end of the stream is in the event log. If the process crashes before that,
 * `publishLateEnds` publishes the end.
 */
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { buildThreadKey, rollbackCheckpoints } from '../checkpoints/copy-checkpoints.ts';
import { type Interrupt, toSearchableText } from '../threads/thread.ts';
import { recordWebhook } from '../webhooks/webhook-rules.ts';
import { lockThread, updateThreadStatus } from './lock-thread.ts';
import { fitsEndEvent, storeFinalValues } from './published-ends.ts';
import type { RunKwargs } from './run.ts';
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
  /**
   * Number of nodes that all attempts executed. Absent if the worker ended without a report; then the nodes whose
   * results are stored count.
   */
  readonly nodes?: number | undefined;
}

/**
 * Ends a run.
 *
 * @returns undefined, without writing anything, if the lease was lost because another process owns the run or the run
 *   was deleted.
 */
export async function endRun(database: Database, run: ClaimedRun, result: RunResult): Promise<EndedRun | undefined> {
  const { deploymentId, runId } = run;
  const threadStatus = getThreadStatus(result);
  // No later run replaces the values of a temporary run.
  const isLarge = !run.kwargs.temporary && !(fitsEndEvent(result.values) && fitsEndEvent(encodeInterrupts(result)));
  async function end(sql: Sql): Promise<EndedRun | undefined> {
    const row = await writeEnd(sql, run, result, threadStatus);
    if (row === undefined) return undefined;
    const ended = toEndedRun(run, row, result, threadStatus);
    const error = ended.error && `${ended.error.error}: ${ended.error.message}`;
    if (isLarge && !ended.removed) await storeFinalValues(sql, ended);
    await recordWebhook(sql, { deploymentId, runId, kwargs: ended.kwargs, values: ended.values, error });
    return ended;
  }
  // Without a webhook and large values, one statement is enough, which is a transaction by itself.
  return run.kwargs.webhook !== undefined || isLarge ? database.transaction(end) : end(database);
}

/** The columns that `agents.end_run` sets or reads. */
type EndRunRow = Pick<EndedRow, 'status' | 'error' | 'removed' | 'ended_at'>;

function toEndedRun(
  { leaseToken: _, baseCheckpointId: __, alone: ___, ...run }: ClaimedRun,
  row: EndRunRow,
  { values, interrupts = {}, eventsMissing = false }: RunResult,
  threadStatus: string,
): EndedRun {
  return {
    ...run,
    status: row.status,
    ...(row.error && { error: row.error }),
    ...(!row.removed && values !== undefined && { values }),
    endedAt: row.ended_at,
    removed: row.removed,
    eventsMissing,
    ...(!row.removed && threadStatus === 'interrupted' && { interrupted: true, interrupts }),
  };
}

async function writeEnd(
  sql: Sql,
  { deploymentId, threadId, runId, leaseToken }: ClaimedRun,
  result: RunResult,
  threadStatus: string,
): Promise<EndRunRow | undefined> {
  const { status, error, values, eventsMissing = false, nodes } = result;
  const [row] = await sql.query<EndRunRow>(
    `SELECT status, error, removed, ended_at
     FROM agents.end_run($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    [
      deploymentId,
      threadId,
      runId,
      leaseToken,
      status,
      error ?? null,
      threadStatus,
      values ?? null,
      values === undefined ? null : toSearchableText(values),
      encodeInterrupts(result) ?? null,
      eventsMissing,
      nodes ?? null,
    ],
    { name: 'agents_end_run' },
  );
  return row;
}

/** Counts the nodes that attempts of a run have executed and whose results are stored. */
export async function countStoredNodes(
  database: Sql,
  { deploymentId, threadId, runId }: Pick<ClaimedRun, 'deploymentId' | 'threadId' | 'runId'>,
): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'SELECT agents.count_stored_nodes($1::uuid, $2::uuid, $3::uuid) AS count',
    [deploymentId, threadId, runId],
  );
  return row!.count;
}

function encodeInterrupts({ interrupts }: RunResult): string | undefined {
  return interrupts && JSON.stringify(interrupts);
}

function getThreadStatus({ status, next = [], interrupts = {} }: RunResult): 'idle' | 'interrupted' | 'error' {
  if (status === 'error' || status === 'timeout') return 'error';
  // A stopped run waits for nothing, even if its state has open interrupts.
  if (status === 'interrupted') return 'idle';
  return next.length > 0 || Object.values(interrupts).some((list) => list.length > 0) ? 'interrupted' : 'idle';
}

/**
 * Ends the pending runs of a thread as interrupted. Call it under the lock of the thread. With `remove` the runs are
 * hidden from clients, and checkpoints of their earlier attempts are rolled back. Notifies the executors, which publish
 * the ends.
 *
 * @returns how many runs ended.
 */
export async function endWaitingRuns(
  tx: Sql,
  deploymentId: string,
  threadId: string,
  {
    runIds,
    remove,
  }: { /** Default: all pending runs. */ readonly runIds?: readonly string[]; readonly remove: boolean },
): Promise<number> {
  const rows = await tx.query<{ run_id: string; attempt: number; kwargs: RunKwargs }>(
    `UPDATE agents.runs run SET status = 'interrupted', removed = $4, lease_token = NULL,
       ended_at = clock_timestamp(), updated_at = clock_timestamp(), end_published = false
     WHERE deployment_id = $1 AND thread_id = $2 AND status = 'pending' AND ($3::uuid[] IS NULL OR run_id = ANY ($3))
     RETURNING run_id, attempt, kwargs`,
    [deploymentId, threadId, runIds ?? null, remove],
    { name: 'agents_end_waiting' },
  );
  if (rows.length === 0) return 0;
  for (const row of rows) {
    if (remove && row.attempt > 0) await rollbackCheckpoints(tx, buildThreadKey(deploymentId, threadId), row.run_id);
    await recordWebhook(tx, { deploymentId, runId: row.run_id, kwargs: row.kwargs });
  }
  await tx.execute("SELECT pg_notify('agent_ends', $1)", [deploymentId]);
  return rows.length;
}

/** Number of lost attempts after which a run fails. */
const maxLostAttempts = 3;

type RunToRelease = Pick<ClaimedRun, 'deploymentId' | 'threadId' | 'runId' | 'leaseToken'>;

interface RequeueOptions {
  /** Whether the next attempt must be the only run in its worker. */
  readonly alone: boolean;
  readonly countsAsLost: boolean;
}

/**
 * Requeues a run, so that any process can start it again. Does nothing if the lease was lost. With `countsAsLost` the
 * attempt counts as lost. After the second loss the run gets a worker of its own, so that no other run can kill it.
 * After the third loss the run fails. A run whose cancellation was requested ends as interrupted.
 */
export async function releaseRun(database: Database, run: RunToRelease, how: RequeueOptions): Promise<void> {
  await database.transaction((tx) => requeueRun(tx, run, { ...how, onlyExpired: false }));
}

/**
 * Like {@link releaseRun}, in a given transaction. With `onlyExpired` it does nothing if the process of the run has a
 * valid heartbeat.
 */
export async function requeueRun(
  tx: Sql,
  { deploymentId, threadId, runId, leaseToken }: RunToRelease,
  { alone, countsAsLost, onlyExpired }: RequeueOptions & { readonly onlyExpired: boolean },
): Promise<void> {
  await lockThread(tx, deploymentId, threadId);
  const [row] = await tx.query<{ status: string; removed: boolean; kwargs: RunKwargs }>(
    requeueSql,
    [
      deploymentId,
      runId,
      leaseToken,
      countsAsLost ? 1 : 0,
      maxLostAttempts,
      JSON.stringify(lostRunFailure),
      alone,
      onlyExpired,
    ],
    { name: 'agents_release_run' },
  );
  if (row === undefined) return;
  const { status, removed, kwargs } = row;
  if (removed) await rollbackCheckpoints(tx, buildThreadKey(deploymentId, threadId), runId);
  else if (status !== 'pending') {
    const error = status === 'error' ? JSON.stringify(lostRunFailure) : null;
    await tx.execute(
      `UPDATE agents.threads SET rest_status = $3, error = $4, state_updated_at = clock_timestamp()
       WHERE deployment_id = $1 AND thread_id = $2`,
      [deploymentId, threadId, error === null ? 'idle' : 'error', error],
    );
  }
  if (status !== 'pending') {
    const error = status === 'error' ? lostRunFailure.message : undefined;
    await recordWebhook(tx, { deploymentId, runId, kwargs, error });
  }
  await updateThreadStatus(tx, deploymentId, threadId);
  await tx.execute("SELECT pg_notify('agent_runs', $1), pg_notify('agent_ends', $1)", [deploymentId]);
}

/** SQL condition: the process of the row `run` of `agents.runs` has a valid heartbeat. */
export const liveProcessCondition = `EXISTS (
  SELECT FROM agents.processes WHERE processes.process_id = run.process_id AND alive_until > clock_timestamp()
)`;

const requeueSql = `
UPDATE agents.runs run SET
  losses = run.losses + $4::int,
  status = next.status,
  removed = coalesce(run.cancel_action = 'rollback', false),
  error = CASE WHEN next.status = 'error' THEN $6::json END,
  alone = run.alone OR $7 OR run.losses + $4::int >= $5::int - 1,
  lease_token = NULL,
  process_id = NULL,
  ended_at = CASE WHEN next.status <> 'pending' THEN clock_timestamp() END,
  end_published = CASE WHEN next.status <> 'pending' THEN false END,
  updated_at = clock_timestamp()
FROM (
  SELECT CASE WHEN cancel_action IS NOT NULL THEN 'interrupted' WHEN losses + $4::int >= $5::int THEN 'error' ELSE 'pending' END AS status
  FROM agents.runs WHERE deployment_id = $1 AND run_id = $2
) next
WHERE run.deployment_id = $1 AND run.run_id = $2 AND run.lease_token = $3 AND run.status = 'running'
  AND (NOT $8::boolean OR NOT ${liveProcessCondition})
RETURNING run.status, run.removed, run.kwargs`;

/** Returns true if a run failed because its attempts were lost, rather than with its own error. */
export const isLostRunFailure = ({ error, message }: RunFailure) =>
  error === lostRunFailure.error && message === lostRunFailure.message;

const lostRunFailure: RunFailure = {
  error: 'RunLost',
  message: `The process that executed the run was lost ${maxLostAttempts} times. It is not retried.`,
};
