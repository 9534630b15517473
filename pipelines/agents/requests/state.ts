import { fault } from '../../../infra/errors/runlake-error.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { readSnapshot } from '../graphs/read-snapshot.ts';
import { selectedState } from '../threads/selected-state.ts';
import type { ThreadState } from '../threads/thread.ts';
import { libraryConfig } from '../workers/run-config.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { threadState } from './thread-state.ts';

type StateRequest = Extract<GraphRequest, { kind: 'state' }>;

/** The state of a thread, at its head or at a checkpoint; empty for a thread without one. @throws CHECKPOINT_NOT_FOUND */
export async function readState(
  graph: CompiledGraph,
  config: ReturnType<typeof libraryConfig>,
  { thread, checkpoint, subgraphs, select }: StateRequest,
): Promise<Partial<ThreadState>> {
  const at = libraryConfig(config, { ...(checkpoint && { checkpoint }), configurable: config.configurable });
  const snapshot = await readSnapshot(graph, at, { subgraphs });
  if (checkpoint?.checkpoint_id !== undefined && snapshot.createdAt === undefined) {
    throw fault('CHECKPOINT_NOT_FOUND', { thread: thread.threadId, checkpoint: checkpoint.checkpoint_id });
  }
  const state = threadState(snapshot);
  // Without a state there is no place where it would be.
  const known = snapshot.createdAt === undefined ? { ...state, checkpoint: null, metadata: {} } : state;
  return selectedState(known, select);
}
