/**
 * Updates the state of a thread outside a run.
 *
 * Invariant: during the update no run of the thread is running in any process, and the database refuses writes under an
 * expired lease.
 *
 *   1. Take a write lease on the thread. A thread with a pending or running run is refused as busy. No run is claimed
 *      under the lease.
 *   2. A worker applies the updates with the graph; the saver writes under the token of the lease.
 *   3. Write values, interrupts and status to the row of the thread.
 *   4. Publish the new state to the readers of the thread's stream.
 *   5. Release the lease. If this process crashes before, the lease expires.
 *
 * After a crash between 3 and 4, stream readers do not receive the update. After a crash between 2 and 3, or if the
 * lease expires there, the checkpoint is written but the row is not: until the next run `/state` returns the new state
 * and `/threads/search` the old one.
 */
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { requireCheckpoint } from '../runs/require-checkpoint.ts';
import type { CheckpointChoice } from '../runs/run.ts';
import type { PublishState } from '../streams/publish-state.ts';
import { leaseThread } from './lease-thread.ts';
import { readThread } from './read-thread.ts';
import { recordThreadState } from './record-thread-state.ts';
import type { Interrupt, ThreadCheckpoint, ThreadState } from './thread.ts';
import { type ThreadDeps, threadOfGraph } from './thread-of-graph.ts';

/** Longer than the timeout of a query to a worker. */
const threadLeaseMs = 60_000;

export interface StateUpdate {
  readonly values?: unknown;
  readonly command?: unknown;
  /** Applies the update as if this node had returned it. */
  readonly as_node?: string;
}

/** The worker's answer to an update. */
interface UpdatedState {
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: ThreadState;
  /** By task. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
}

/**
 * Applies `updates` to the state; each inner list is one super-step.
 *
 * @returns the checkpoint of the new state.
 * @throws THREAD_NOT_FOUND, THREAD_WITHOUT_GRAPH, CHECKPOINT_NOT_FOUND, THREAD_BUSY, STATE_UPDATE_INVALID; the errors of
 *   {@link ThreadDeps.pool}.
 */
export async function updateThreadState(
  deps: ThreadDeps & { readonly publishState?: PublishState },
  threadId: string,
  { checkpoint, updates }: { readonly checkpoint?: CheckpointChoice; readonly updates: readonly StateUpdate[][] },
): Promise<ThreadCheckpoint> {
  const { database, deploymentId, pool } = deps;
  const thread = await threadOfGraph(deps, await readThread(database, deploymentId, threadId));
  if (thread === undefined) throw runlakeError('THREAD_WITHOUT_GRAPH', { thread: threadId });
  if (checkpoint !== undefined) await requireCheckpoint(database, deploymentId, thread.threadId, checkpoint);
  const lease = await leaseThread(database, deploymentId, threadId, threadLeaseMs);
  try {
    const answer = await pool.ask({
      kind: 'update-state',
      thread,
      leaseToken: lease.token,
      updates,
      ...(checkpoint && { checkpoint }),
    });
    const updated = JSON.parse(answer) as UpdatedState | null;
    if (!updated?.checkpoint) throw runlakeError('STATE_UPDATE_INVALID', { reason: 'the graph has no checkpointer' });
    const { checkpoint: newCheckpoint, state, interrupts } = updated;
    const { values, next } = state;
    const threadStart = await recordThreadState(database, deploymentId, threadId, lease.token, {
      values,
      next,
      interrupts,
    });
    if (threadStart > 0)
      await deps.publishState?.({ deploymentId, threadId, threadStart, updateId: lease.token, state });
    return newCheckpoint;
  } finally {
    await lease.release();
  }
}
