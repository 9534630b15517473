/**
 * Writes state to a thread outside a run.
 *
 * Invariant: while it writes, no run of the thread is under way in any process, and what was written under a hold that is over
 * is refused by the database.
 *
 *   1. The thread is held: no run is taken up, and a thread with a run is refused as busy.
 *   2. The graph puts the updates in; its saver writes under the hold's token.
 *   3. What clients see of the thread (values, next nodes, interrupts) is noted in its row.
 *   4. Readers of the thread are told.
 *   5. The hold is released. Where this process dies before, it runs out by itself.
 *
 * A crash between 3 and 4 leaves readers untold. A crash between 2 and 3, or a hold that runs out there, leaves the state written and
 * the row as it was: `/state` tells the new one, `/threads/search` the old one until the next run.
 */
import { fault } from '../../../infra/errors/runlake-error.ts';
import { requireCheckpoint } from '../runs/require-checkpoint.ts';
import type { CheckpointChoice } from '../runs/run.ts';
import type { TellState } from '../streams/tell-state.ts';
import { holdThread } from './hold-thread.ts';
import { noteThreadState } from './note-thread-state.ts';
import { readThread } from './read-thread.ts';
import type { Interrupt, ThreadCheckpoint, ThreadState } from './thread.ts';
import { type ThreadPorts, threadOfGraph } from './thread-of-graph.ts';

/** Longer than any question to graph code may take. */
const holdMs = 60_000;

export interface StateUpdate {
  readonly values?: unknown;
  readonly command?: unknown;
  /** As if this node had answered it. */
  readonly as_node?: string;
}

/** What graph code answers to an update. */
interface UpdatedState {
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: ThreadState;
  /** By task. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
}

/**
 * Puts `updates` in, those of one inner list as one super-step.
 *
 * @returns the checkpoint that holds the new state.
 * @throws THREAD_NOT_FOUND, THREAD_WITHOUT_GRAPH, CHECKPOINT_NOT_FOUND, THREAD_BUSY, and what {@link ThreadPorts.pool} throws.
 */
export async function updateThreadState(
  ports: ThreadPorts & { readonly tellState?: TellState },
  threadId: string,
  { checkpoint, updates }: { readonly checkpoint?: CheckpointChoice; readonly updates: readonly StateUpdate[][] },
): Promise<ThreadCheckpoint> {
  const { database, deploymentId, pool } = ports;
  const thread = await threadOfGraph(ports, await readThread(database, deploymentId, threadId));
  if (thread === undefined) throw fault('THREAD_WITHOUT_GRAPH', { thread: threadId });
  if (checkpoint !== undefined) await requireCheckpoint(database, deploymentId, thread.threadId, checkpoint);
  const hold = await holdThread(database, deploymentId, threadId, holdMs);
  try {
    const answer = await pool.ask({
      kind: 'update-state',
      thread,
      leaseToken: hold.token,
      updates,
      ...(checkpoint && { checkpoint }),
    });
    const updated = JSON.parse(answer) as UpdatedState | null;
    if (!updated?.checkpoint) throw fault('STATE_UPDATE_INVALID', { reason: 'The graph keeps no state' });
    const { checkpoint: made, state, interrupts } = updated;
    const { values, next } = state;
    const threadStart = await noteThreadState(database, deploymentId, threadId, hold.token, {
      values,
      next,
      interrupts,
    });
    if (threadStart > 0) await ports.tellState?.({ deploymentId, threadId, threadStart, updateId: hold.token, state });
    return made;
  } finally {
    await hold.release();
  }
}
