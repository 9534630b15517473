/**
 * Updates the state of a thread outside a run.
 *
 * Invariant: during the update no run of the thread is running in any process, and the database refuses writes under an
 * expired lease.
 *
 *   1. Wait for other updates of the thread in this process, then take a write lease on it. If a run of the thread is
 *      pending or running, the update is refused because the thread is busy. While the lease is valid, no run of the
 *      thread is claimed.
 *   2. A worker applies the updates with the graph; the saver writes with the token of the lease.
 *   3. Write values, interrupts and status to the row of the thread.
 *   4. Publish the new state to the readers of the thread's stream.
 *   5. Release the lease. If this process crashes before this step, the lease expires.
 *
 * After a crash between steps 3 and 4, stream readers do not receive the update. After a crash between steps 2 and 3,
 * or if the lease expires between them, the checkpoint is written but the row is not. In this case `/state` returns the
 * new state and `/threads/search` the old state until the next run.
 */
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { runExclusiveForAll } from '../../../infra/fairness/run-exclusive.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import { retryWhileUnavailable } from '../../../infra/postgres/database-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { poll } from '../../../infra/timeouts/poll.ts';
import { buildThreadKey, requireCheckpoint } from '../checkpoints/copy-checkpoints.ts';
import type { CheckpointReference } from '../runs/run.ts';
import type { PublishState } from '../streams/publish-state.ts';
import { parseAnswerWithout } from '../workers/front/parse-answer.ts';
import type { GraphThread, StateUpdate } from '../workers/messages.ts';
import { deleteThread } from './delete-thread.ts';
import { type NewestState, readNewestState } from './newest-state.ts';
import {
  type Interrupt,
  readThread,
  readThreadHead,
  type Thread,
  type ThreadCheckpoint,
  type ThreadState,
  toSearchableText,
} from './thread.ts';
import { copyThread, createThread, type NewThread, resolveGraphThread, type ThreadDeps } from './write-threads.ts';

export interface ThreadLease {
  /** The `write_token` with which the saver writes. */
  readonly token: string;
  /** Start number of the thread. It does not change until the lease ends, except by {@link recordThreadState}. */
  readonly starts: number;
  release(): Promise<void>;
}

/**
 * How long an update of the state waits for its turn among the updates of the thread in this process, and for a lease
 * of another process. The limit is checked when the turn has come.
 */
const maxLeaseWaitMs = 10_000;
const leaseRetryMs = 50;

/**
 * Takes a write lease on a thread for at most `ms` milliseconds, to update its state outside a run. No run of the
 * thread is claimed until the lease is released or expires.
 *
 * @param waitMs how long to wait if another process holds the lease. Default: 0.
 * @throws THREAD_NOT_FOUND; THREAD_BUSY if a run of the thread is pending or running, or if another process still holds
 *   the lease.
 */
export async function leaseThread(
  database: Sql,
  deploymentId: string,
  threadId: string,
  ms: number,
  waitMs = 0,
): Promise<ThreadLease> {
  const taken = await poll(() => takeLease(database, deploymentId, threadId, ms), {
    intervalMs: leaseRetryMs,
    timeoutMs: waitMs,
  });
  if (taken === undefined) throw runlakeError('THREAD_BUSY', { thread: threadId });
  return {
    ...taken,
    async release() {
      await database.query(
        `WITH released AS (
           UPDATE agents.threads SET write_token = NULL, write_until = NULL
           WHERE deployment_id = $1 AND thread_id = $2 AND write_token = $3
         ) SELECT pg_notify('agent_runs', $1::uuid::text)`,
        [deploymentId, threadId, taken.token],
      );
    },
  };
}

/** Takes a lease. @returns undefined if the thread has a valid one. @throws the errors of {@link leaseThread} */
async function takeLease(
  database: Sql,
  deploymentId: string,
  threadId: string,
  ms: number,
): Promise<Pick<ThreadLease, 'token' | 'starts'> | undefined> {
  const [row] = await database.query<{ write_token: string | null; starts: number; busy: boolean }>(
    `WITH thread AS (
       SELECT deployment_id, thread_id, starts, status = 'busy' AS busy,
         status <> 'busy' AND (write_until IS NULL OR write_until <= clock_timestamp()) AS free
       FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND NOT hidden FOR UPDATE
     ), held AS (
       UPDATE agents.threads SET write_token = gen_random_uuid(), write_until = clock_timestamp() + $3 * interval '1 millisecond'
       FROM thread WHERE thread.free AND threads.deployment_id = thread.deployment_id AND threads.thread_id = thread.thread_id
       RETURNING write_token
     )
     SELECT (SELECT write_token FROM held) AS write_token, starts, busy FROM thread`,
    [deploymentId, threadId, ms],
  );
  if (row === undefined) throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
  if (row.busy) throw runlakeError('THREAD_BUSY', { thread: threadId });
  return row.write_token === null ? undefined : { token: row.write_token, starts: row.starts };
}

/**
 * Writes values, interrupts and status to the row of a thread after its state was updated outside a run. Idempotent.
 *
 * @returns the start number of the update, which its stream event needs (run starts and state updates share one
 *   sequence); 0 if nothing was written because the write lease has expired or the thread was deleted.
 */
export async function recordThreadState(
  database: Sql,
  deploymentId: string,
  threadId: string,
  lease: Pick<ThreadLease, 'token' | 'starts'>,
  state: NewestState,
): Promise<number> {
  const restStatus = state.next.length > 0 || Object.keys(state.interrupts).length > 0 ? 'interrupted' : 'idle';
  const [row] = await database.query<{ starts: number }>(
    `UPDATE agents.threads SET starts = $8::bigint + 1, values = $3, searchable_values = $4, interrupts = $5, rest_status = $6, error = NULL,
       status = CASE WHEN status = 'busy' THEN status ELSE $6 END,
       expires_at = clock_timestamp() + ttl_minutes * interval '1 minute',
       updated_at = clock_timestamp(), state_updated_at = clock_timestamp()
     WHERE deployment_id = $1 AND thread_id = $2 AND write_token = $7 AND write_until > clock_timestamp() RETURNING starts`,
    [
      deploymentId,
      threadId,
      state.values,
      toSearchableText(state.values),
      JSON.stringify(state.interrupts),
      restStatus,
      lease.token,
      lease.starts,
    ],
  );
  return row?.starts ?? 0;
}

/** Duration of the write lease. It exceeds the timeout of a query to a worker. */
const threadLeaseMs = 60_000;

/** The worker's answer to an update, without the values of the state. */
interface UpdatedState {
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: Omit<ThreadState, 'values'>;
  /** Open interrupts by task id. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
}

interface StateChange {
  readonly checkpoint?: CheckpointReference;
  readonly updates: readonly StateUpdate[][];
}

type UpdateDeps = ThreadDeps & { readonly publishState?: PublishState; readonly logger: Pick<Logger, 'warn'> };

/**
 * Applies `updates` to the state of a thread. Each inner list is one super-step. Concurrent updates of the thread are
 * applied one after the other.
 *
 * @returns the checkpoint of the new state.
 * @throws THREAD_NOT_FOUND, THREAD_WITHOUT_GRAPH, CHECKPOINT_NOT_FOUND, THREAD_BUSY, STATE_UPDATE_INVALID; the errors
 *   of {@link ThreadDeps.pool}.
 */
export async function updateThreadState(
  deps: UpdateDeps,
  requestedThreadId: string,
  change: StateChange,
): Promise<ThreadCheckpoint> {
  const { database, deploymentId } = deps;
  const thread = await resolveGraphThread(deps, await readThreadHead(database, deploymentId, requestedThreadId));
  if (thread === undefined) throw runlakeError('THREAD_WITHOUT_GRAPH', { thread: requestedThreadId });
  // Readers of the stream use the id as it is stored; the requested id may be in upper case.
  const { threadId } = thread;
  const { checkpoint } = change;
  if (checkpoint !== undefined) await requireCheckpoint(database, deploymentId, threadId, checkpoint);
  const createError = () => runlakeError('THREAD_BUSY', { thread: threadId });
  const deadlineMs = performance.now() + maxLeaseWaitMs;
  return runExclusiveForAll(
    [`state ${buildThreadKey(deploymentId, threadId)}`],
    { maxWaitMs: maxLeaseWaitMs, createError },
    () => updateGraphThread(deps, thread, change, deadlineMs),
  );
}

async function updateGraphThread(
  deps: UpdateDeps,
  thread: GraphThread,
  { checkpoint, updates }: StateChange,
  deadlineMs: number,
): Promise<ThreadCheckpoint> {
  const { database, deploymentId, pool } = deps;
  const { threadId } = thread;
  const waitMs = Math.max(deadlineMs - performance.now(), 0);
  const lease = await leaseThread(database, deploymentId, threadId, threadLeaseMs, waitMs);
  // If the lease is not released, it expires by itself.
  const warn = (err: unknown) => deps.logger.warn({ err, threadId }, 'lease of a thread not released');
  try {
    const result = await pool.query({
      kind: 'update-state',
      thread,
      leaseToken: lease.token,
      updates,
      ...(checkpoint && { checkpoint }),
    });
    const { answer: updatedState, text: values } = parseAnswerWithout<UpdatedState | null>(result, ['state', 'values']);
    if (!updatedState?.checkpoint)
      throw runlakeError('STATE_UPDATE_INVALID', { reason: 'the graph has no checkpointer' });
    const { checkpoint: newCheckpoint, state, interrupts } = updatedState;
    const { next } = state;
    // The update is stored. A client whose request fails repeats it, and it would be applied twice.
    const threadStart = await retryWhileUnavailable(() =>
      recordThreadState(database, deploymentId, threadId, lease, { values, next, interrupts }),
    );
    if (threadStart > 0)
      await deps.publishState?.({ deploymentId, threadId, threadStart, updateId: lease.token, state, values });
    await retryWhileUnavailable(() => lease.release()).catch(warn);
    return newCheckpoint;
  } catch (error) {
    // Retries must not delay the error. Until the release no run of the thread starts.
    void retryWhileUnavailable(() => lease.release()).catch(warn);
    throw error;
  }
}

/**
 * Copies a thread with its state (`copyThread`). If a run or an update has stored newer state than the row of the thread
 * has, the row of the copy gets this state. If this fails, the row keeps the older state, because a client that repeated
 * the request after an error would get a second copy.
 *
 * @throws THREAD_TO_COPY_NOT_FOUND
 */
export async function copyThreadWithState(
  deps: UpdateDeps,
  threadId: string,
  metadata?: Readonly<Record<string, unknown>>,
): Promise<Thread> {
  const { copy, isDuringWrite } = await copyThread(deps.database, deps.deploymentId, threadId, metadata);
  if (!isDuringWrite) return copy;
  return recordStoredState(deps, copy).catch((err) => {
    deps.logger.warn({ err, threadId: copy.thread_id }, 'newer state of a copied thread not written to its row');
    return copy;
  });
}

/** Writes the stored state of a thread to its row. @returns the thread with this state. */
async function recordStoredState(deps: ThreadDeps, thread: Thread): Promise<Thread> {
  const { database, deploymentId, pool } = deps;
  const { thread_id: threadId } = thread;
  const graphThread = await resolveGraphThread(deps, thread);
  const state = graphThread && (await readNewestState(pool, graphThread));
  if (state === undefined) return thread;
  const lease = await leaseThread(database, deploymentId, threadId, threadLeaseMs);
  try {
    await recordThreadState(database, deploymentId, threadId, lease, state);
  } finally {
    await lease.release();
  }
  return readThread(database, deploymentId, threadId);
}

/**
 * Creates a thread and, if it did not exist before, applies `supersteps` to its state. If that fails, the new thread is
 * deleted.
 *
 * @throws THREAD_EXISTS; the errors of {@link updateThreadState}.
 */
export async function createThreadWithState(
  deps: UpdateDeps,
  newThread: NewThread,
  supersteps: readonly (readonly StateUpdate[])[],
): Promise<Thread> {
  const { database, deploymentId, threadTtl: defaultTtl } = deps;
  const thread = defaultTtl === undefined ? newThread : { ttl: defaultTtl, ...newThread };
  if (supersteps.length === 0) return createThread(database, deploymentId, thread);
  let created: Thread;
  try {
    created = await createThread(database, deploymentId, { ...thread, ifExists: 'raise' });
  } catch (error) {
    const keepsExisting = isRunlakeError(error) && error.code === 'THREAD_EXISTS' && thread.ifExists === 'do_nothing';
    if (keepsExisting) return createThread(database, deploymentId, thread);
    throw error;
  }
  try {
    await updateThreadState(deps, created.thread_id, { updates: supersteps.map((updates) => [...updates]) });
  } catch (error) {
    await deleteThread(database, deploymentId, created.thread_id);
    throw error;
  }
  return readThread(database, deploymentId, created.thread_id);
}
