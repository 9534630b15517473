import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { CheckpointChoice } from '../runs/run.ts';
import { readThread } from './read-thread.ts';
import { selectedState } from './selected-state.ts';
import type { ThreadState } from './thread.ts';
import { type ThreadDeps, threadOfGraph } from './thread-of-graph.ts';

const emptyState: ThreadState = {
  values: {},
  next: [],
  tasks: [],
  checkpoint: null,
  parent_checkpoint: null,
  metadata: {},
  created_at: null,
  interrupts: [],
};

export interface StateQuestion {
  readonly checkpoint?: CheckpointChoice;
  readonly subgraphs: boolean;
  /** Returns only these fields. */
  readonly select?: readonly string[];
}

/**
 * Reads the newest state of a thread, or that of a checkpoint, as JSON text. An empty state if no graph has run on the
 * thread.
 *
 * @throws THREAD_NOT_FOUND, CHECKPOINT_NOT_FOUND; the errors of {@link ThreadDeps.pool}.
 */
export async function readThreadState(
  deps: ThreadDeps,
  threadId: string,
  { checkpoint, subgraphs, select }: StateQuestion,
): Promise<string> {
  const thread = await threadOfGraph(deps, await readThread(deps.database, deps.deploymentId, threadId));
  if (thread !== undefined) {
    const options = { ...(checkpoint && { checkpoint }), ...(select && { select }) };
    const text = await deps.pool.ask({ kind: 'state', thread, subgraphs, ...options });
    // The worker answers null for a graph without a checkpointer.
    if (text !== 'null') return text;
  }
  if (checkpoint?.checkpoint_id !== undefined) {
    throw runlakeError('CHECKPOINT_NOT_FOUND', { thread: threadId, checkpoint: checkpoint.checkpoint_id });
  }
  return JSON.stringify(selectedState(emptyState, select));
}
