import { fault } from '../../../infra/errors/runlake-error.ts';
import { isLeaseLost } from '../checkpoints/leased-saver.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { type NodeCommand, nodesOf, requireTargets } from '../graphs/graph-nodes.ts';
import { readSnapshot } from '../graphs/read-snapshot.ts';
import type { RunCommand } from '../runs/run.ts';
import type { ThreadCheckpoint, ThreadState } from '../threads/thread.ts';
import { libraryCommand, libraryConfig } from '../workers/run-config.ts';
import { interruptsOf } from '../workers/state-of-run.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { checkpointOf, threadState } from './thread-state.ts';

type UpdateRequest = Extract<GraphRequest, { kind: 'update-state' }>;

/** What is known after an update: where the new state is, and what belongs into the thread's row. */
export interface UpdatedState {
  readonly checkpoint: ThreadCheckpoint | null;
  readonly state: ThreadState;
  /** By task. */
  readonly interrupts: object;
}

const callersFaults = new Set(['InvalidUpdateError', 'EmptyInputError', 'EmptyChannelError']);

/** Writes super-steps onto a thread, on its head or on a checkpoint. @throws STATE_UPDATE_INVALID, GRAPH_NODE_UNKNOWN */
export async function updateState(
  graph: CompiledGraph,
  config: ReturnType<typeof libraryConfig>,
  { thread, checkpoint, updates }: UpdateRequest,
): Promise<UpdatedState> {
  const at = libraryConfig(config, { ...(checkpoint && { checkpoint }), configurable: config.configurable });
  const nodes = nodesOf(graph);
  for (const { command } of updates.flat()) {
    if (nodes !== undefined) requireTargets(thread.graphId, nodes, command as NodeCommand);
  }
  const supersteps = updates.map((step) => ({
    updates: step.map(({ values, command, as_node }) => ({
      values: command === undefined || command === null ? (values ?? null) : libraryCommand(command as RunCommand),
      ...(as_node !== undefined && as_node !== null && { asNode: as_node }),
    })),
  }));
  try {
    const place = await graph.bulkUpdateState(at, supersteps);
    const head = await readSnapshot(graph, { configurable: { thread_id: thread.threadId } });
    return { checkpoint: checkpointOf(place), state: threadState(head), interrupts: interruptsOf(head) };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    if (isLeaseLost(error)) {
      throw fault('THREAD_BUSY', { thread: thread.threadId });
    }
    if (
      callersFaults.has(error.name) ||
      /^Node ".*" does not exist|^No (supersteps|updates) provided|^Subgraph "/.test(error.message)
    ) {
      throw fault('STATE_UPDATE_INVALID', { reason: error.message.replace(/\.?\s*$/, '') });
    }
    throw error;
  }
}
