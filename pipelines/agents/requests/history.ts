import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { requireWithin } from '../page-within.ts';
import { selectedState } from '../threads/selected-state.ts';
import { graphJson } from '../workers/graph-json.ts';
import { libraryConfig } from '../workers/run-config.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { threadState } from './thread-state.ts';

type HistoryRequest = Extract<GraphRequest, { kind: 'history' }>;

/** JSON text of states of a thread, newest first; with `checkpoint.checkpoint_ns` those of a subgraph. @throws ANSWER_TOO_LARGE */
export async function readHistory(
  graph: CompiledGraph,
  config: ReturnType<typeof libraryConfig>,
  { limit, before, checkpoint, metadata, select, limitBytes = Number.MAX_SAFE_INTEGER }: HistoryRequest,
): Promise<string> {
  const place = (choice: HistoryRequest['checkpoint']) =>
    libraryConfig(config, { ...(choice && { checkpoint: choice }), configurable: config.configurable });
  const states: string[] = [];
  let bytes = 0;
  const options = { limit, ...(before && { before: place(before) }), ...(metadata && { filter: metadata }) };
  for await (const snapshot of graph.getStateHistory(place(checkpoint), options)) {
    const state = graphJson(selectedState(threadState(snapshot), select));
    bytes += Buffer.byteLength(state);
    requireWithin(states.push(state), bytes, limitBytes);
    if (states.length === limit) break;
  }
  return `[${states.join(',')}]`;
}
