import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import type { RunCommand } from '../runs/run.ts';

/**
 * Executes `goto: '__end__'`: applies `update` if given, then ends the graph on the thread, so that no node is next.
 * LangGraph ignores this `goto` as a run command. Repeating the call without the update is harmless.
 *
 * @param config Config of the run, with the checkpoint to continue from; without one, the head.
 * @throws errors of the graph and its saver.
 */
export async function goToEnd(graph: CompiledGraph, config: object, update: RunCommand['update']): Promise<void> {
  const end = { updates: [{ values: null, asNode: '__end__' }] };
  const updates = update === undefined || update === null ? [] : [{ updates: [{ values: update }] }];
  await graph.bulkUpdateState(config, [...updates, end]);
}
