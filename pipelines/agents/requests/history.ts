import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { requireWithin } from '../page-within.ts';
import { selectedState } from '../threads/selected-state.ts';
import { graphJson } from '../workers/graph-json.ts';
import { toLibraryConfig } from '../workers/run-config.ts';
import type { GraphRequest } from '../workers/worker-pool.ts';
import { toThreadState } from './thread-state.ts';

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
