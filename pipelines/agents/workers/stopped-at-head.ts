import type { BaseCheckpointSaver, Checkpoint } from '@langchain/langgraph-checkpoint';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';

/** Nodes, or `*` for all. */
type Nodes = '*' | readonly string[];

/**
 * Whether the state that an earlier attempt left is one where the run was to stop, before or after a node. The library takes an attempt
 * that goes on from there for the answer to that stop, and would pass it; so it is decided here as the library decides it: something
 * has changed since the last stop, and one of the nodes comes next or came last.
 *
 * Stops that a subgraph was compiled with are not seen.
 *
 * @throws what the saver throws.
 */
export async function stoppedAtHead(
  graph: CompiledGraph,
  saver: BaseCheckpointSaver,
  threadId: string,
  asked: { readonly before: Nodes | undefined; readonly after: Nodes | undefined },
): Promise<boolean> {
  const before = asked.before ?? graph.interruptBefore ?? [];
  const after = asked.after ?? graph.interruptAfter ?? [];
  if (before.length === 0 && after.length === 0) return false;
  const place = { configurable: { thread_id: threadId, checkpoint_ns: '' } };
  const head = await saver.getTuple(place);
  if (head === undefined || !changedSinceStop(head.checkpoint)) return false;
  const { next, metadata, parentConfig } = await graph.getState(place);
  if (next.length === 0) return false;
  if (isAmong(before, next)) return true;
  if (metadata?.source !== 'loop' || parentConfig === undefined) return false;
  const { tasks } = await graph.getState(parentConfig);
  return isAmong(
    after,
    tasks.map(({ name }) => name),
  );
}

function changedSinceStop({ channel_versions, versions_seen }: Checkpoint): boolean {
  const seen = versions_seen.__interrupt__ ?? {};
  return Object.entries(channel_versions).some(([channel, version]) => {
    const last = seen[channel];
    return last === undefined || version > last;
  });
}

/** The node that only puts the input in is hidden, and no stop is before or after it. */
function isAmong(nodes: Nodes, names: readonly string[]): boolean {
  const shown = names.filter((name) => name !== '__start__');
  return nodes === '*' ? shown.length > 0 : shown.some((name) => nodes.includes(name));
}
