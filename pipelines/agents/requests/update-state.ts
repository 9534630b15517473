import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { isLeaseLost } from '../checkpoints/leased-saver.ts';
import { type CompiledGraph, readSnapshot } from '../graphs/compiled-graph.ts';
import { type NodeCommand, readNodes, requireTargets } from '../graphs/graph-nodes.ts';
import type { RunCommand } from '../runs/run.ts';
import type { ThreadCheckpoint, ThreadState } from '../threads/thread.ts';
import { toLibraryCommand, toLibraryConfig } from '../workers/run-config.ts';
import { collectInterrupts } from '../workers/state-of-run.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { toCheckpoint, toThreadState } from './thread-state.ts';

type UpdateRequest = Extract<GraphRequest, { kind: 'update-state' }>;

/** Result of a state update: the new checkpoint, and the state and interrupts for the row of the thread. */
export interface UpdatedState {
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: ThreadState;
  /** Open interrupts by task id. */
  readonly interrupts: object;
}

const callerErrors = new Set(['InvalidUpdateError', 'EmptyInputError', 'EmptyChannelError']);

/**
 * Writes state updates (one or more supersteps) at the head of a thread or at a checkpoint.
 *
 * @throws STATE_UPDATE_INVALID, GRAPH_NODE_UNKNOWN, THREAD_BUSY if the lease was lost, and errors of the graph.
 */
export async function updateState(
  graph: CompiledGraph,
  config: ReturnType<typeof toLibraryConfig>,
  { thread, checkpoint, updates }: UpdateRequest,
): Promise<UpdatedState> {
  const at = toLibraryConfig(config, { ...(checkpoint && { checkpoint }), configurable: config.configurable });
  const nodes = readNodes(graph);
  for (const { command } of updates.flat()) {
    if (nodes !== undefined) requireTargets(thread.graphId, nodes, command as NodeCommand);
  }
  const supersteps = updates.map((step) => ({
    updates: step.map(({ values, command, as_node }) => ({
      values: command === undefined || command === null ? (values ?? null) : toLibraryCommand(command as RunCommand),
      ...(as_node !== undefined && as_node !== null && { asNode: as_node }),
    })),
  }));
  try {
    const location = await graph.bulkUpdateState(at, supersteps);
    const head = await readSnapshot(graph, { configurable: { thread_id: thread.threadId } });
    return { checkpoint: toCheckpoint(location), state: toThreadState(head), interrupts: collectInterrupts(head) };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    if (isLeaseLost(error)) {
      throw runlakeError('THREAD_BUSY', { thread: thread.threadId });
    }
    if (
      callerErrors.has(error.name) ||
      /^Node ".*" does not exist|^No (supersteps|updates) provided|^Subgraph "/.test(error.message)
    ) {
      throw runlakeError('STATE_UPDATE_INVALID', { reason: error.message.replace(/\.?\s*$/, '') });
    }
    throw error;
  }
}
