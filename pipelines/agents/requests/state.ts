import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { readSnapshot } from '../graphs/read-snapshot.ts';
import { selectedState } from '../threads/selected-state.ts';
import type { ThreadState } from '../threads/thread.ts';
import { toLibraryConfig } from '../workers/run-config.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { toThreadState } from './thread-state.ts';

type StateRequest = Extract<GraphRequest, { kind: 'state' }>;

/**
 * Reads the state of a thread at its head or at a checkpoint; the state of a new thread is empty. @throws
 * CHECKPOINT_NOT_FOUND
 */
export async function readState(
  graph: CompiledGraph,
  config: ReturnType<typeof toLibraryConfig>,
  { thread, checkpoint, subgraphs, select }: StateRequest,
): Promise<Partial<ThreadState>> {
  const at = toLibraryConfig(config, { ...(checkpoint && { checkpoint }), configurable: config.configurable });
  const snapshot = await readSnapshot(graph, at, { subgraphs });
  if (checkpoint?.checkpoint_id !== undefined && snapshot.createdAt === undefined) {
    throw runlakeError('CHECKPOINT_NOT_FOUND', { thread: thread.threadId, checkpoint: checkpoint.checkpoint_id });
  }
  const state = toThreadState(snapshot);
  // Without a stored state there is no checkpoint to return.
  const known = snapshot.createdAt === undefined ? { ...state, checkpoint: null, metadata: {} } : state;
  return selectedState(known, select);
}
