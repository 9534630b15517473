import type { CheckpointConfig, CompiledGraph, Snapshot } from './compiled-graph.ts';

/**
 * Reads the state at a checkpoint or at the head of a thread. Between two steps, when all tasks have written but the
 * next checkpoint does not exist, LangGraph applies the pending writes and returns an empty `next`, as if the graph had
 * ended. This function then returns the state of the last checkpoint, from which the graph would continue.
 */
export async function readSnapshot(
  graph: CompiledGraph,
  location: CheckpointConfig,
  options?: Parameters<CompiledGraph['getState']>[1],
): Promise<Snapshot> {
  const snapshot = await graph.getState(location, options);
  const { next, tasks, config } = snapshot;
  if (next.length > 0 || tasks.length === 0 || config?.configurable === undefined) return snapshot;
  return graph.getState({ ...location, configurable: { ...location.configurable, ...config.configurable } }, options);
}
