import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { type CompiledGraph, readSnapshot } from '../graphs/compiled-graph.ts';
import { requireWithin } from '../page-within.ts';
import { selectedState } from '../threads/selected-state.ts';
import type { ThreadState } from '../threads/thread.ts';
import { graphJson } from '../workers/graph-json.ts';
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

type HistoryRequest = Extract<GraphRequest, { kind: 'history' }>;

/**
 * Returns the states of a thread, or of the subgraph `checkpoint.checkpoint_ns`, newest first, as JSON text. @throws
 * ANSWER_TOO_LARGE
 */
export async function readHistory(
  graph: CompiledGraph,
  config: ReturnType<typeof toLibraryConfig>,
  { limit, before, checkpoint, metadata, select, limitBytes = Number.MAX_SAFE_INTEGER }: HistoryRequest,
): Promise<string> {
  const configOf = (choice: HistoryRequest['checkpoint']) =>
    toLibraryConfig(config, { ...(choice && { checkpoint: choice }), configurable: config.configurable });
  const states: string[] = [];
  let bytes = 0;
  const options = { limit, ...(before && { before: configOf(before) }), ...(metadata && { filter: metadata }) };
  for await (const snapshot of graph.getStateHistory(configOf(checkpoint), options)) {
    const state = graphJson(selectedState(toThreadState(snapshot), select));
    bytes += Buffer.byteLength(state);
    requireWithin(states.push(state), bytes, limitBytes);
    if (states.length === limit) break;
  }
  return `[${states.join(',')}]`;
}
