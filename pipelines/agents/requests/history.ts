import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { selectedState } from '../threads/selected-state.ts';
import type { ThreadState } from '../threads/thread.ts';
import { libraryConfig } from '../workers/run-config.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { threadState } from './thread-state.ts';

type HistoryRequest = Extract<GraphRequest, { kind: 'history' }>;

/** States of a thread, newest first; with `checkpoint.checkpoint_ns` those of a subgraph. */
export async function readHistory(
  graph: CompiledGraph,
  config: ReturnType<typeof libraryConfig>,
  { limit, before, checkpoint, metadata, select }: HistoryRequest,
): Promise<Partial<ThreadState>[]> {
  const place = (choice: HistoryRequest['checkpoint']) =>
    libraryConfig(config, { ...(choice && { checkpoint: choice }), configurable: config.configurable });
  const states: Partial<ThreadState>[] = [];
  const options = { limit, ...(before && { before: place(before) }), ...(metadata && { filter: metadata }) };
  for await (const snapshot of graph.getStateHistory(place(checkpoint), options)) {
    states.push(selectedState(threadState(snapshot), select));
    if (states.length === limit) break;
  }
  return states;
}
