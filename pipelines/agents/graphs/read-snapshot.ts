import type { CompiledGraph, GraphPlace, Snapshot } from './compiled-graph.ts';

/**
 * The state at a place of a thread. Between two steps, when all tasks of one have written and the checkpoint after them is not
 * there yet, the library shows what they wrote and says that nothing follows, as if the graph had come to its end; here that is the
 * state of the last checkpoint, from which the graph would go on.
 */
export async function readSnapshot(
  graph: CompiledGraph,
  place: GraphPlace,
  options?: Parameters<CompiledGraph['getState']>[1],
): Promise<Snapshot> {
  const snapshot = await graph.getState(place, options);
  const { next, tasks, config } = snapshot;
  if (next.length > 0 || tasks.length === 0 || config?.configurable === undefined) return snapshot;
  return graph.getState({ ...place, configurable: { ...place.configurable, ...config.configurable } }, options);
}
