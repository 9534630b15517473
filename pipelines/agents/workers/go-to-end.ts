import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import type { RunCommand } from '../runs/run.ts';

/**
 * Ends what waits on a thread, as `goto` of `__end__` says: after `update`, where there is one, nothing comes next. Given to the library as
 * a command of a run it would change nothing. Repeating it, without the update, is harmless.
 *
 * @param config Of the run: the checkpoint that is gone on from, else the head.
 * @throws what the graph and its saver throw.
 */
export async function goToEnd(graph: CompiledGraph, config: object, update: RunCommand['update']): Promise<void> {
  const end = { updates: [{ values: null, asNode: '__end__' }] };
  const updates = update === undefined || update === null ? [] : [{ updates: [{ values: update }] }];
  await graph.bulkUpdateState(config, [...updates, end]);
}
