/**
 * Whether the state that an earlier attempt left is one where the run was to stop, before or after a node. The library takes an attempt
 * that goes on from there for the answer to that stop, and would pass it; so it is decided here as the library decides it: something
 * has changed since the last stop, and one of the nodes comes next or came last.
 */
import type { BaseCheckpointSaver, Checkpoint, CheckpointTuple } from '@langchain/langgraph-checkpoint';
import type { CompiledGraph, GraphPlace } from '../graphs/compiled-graph.ts';

/** Nodes, or `*` for all. */
type Nodes = '*' | readonly string[];

interface Stops {
  readonly before: Nodes | undefined;
  readonly after: Nodes | undefined;
}

/**
 * Of the graph itself; its head is the run's own.
 *
 * @throws what the saver throws.
 */
export async function stoppedAtHead(
  graph: CompiledGraph,
  saver: BaseCheckpointSaver,
  threadId: string,
  asked: Stops,
): Promise<boolean> {
  const before = asked.before ?? graph.interruptBefore;
  const after = asked.after ?? graph.interruptAfter;
  const place = { configurable: { thread_id: threadId, checkpoint_ns: '' } };
  const head = areAny({ before, after }) ? await saver.getTuple(place) : undefined;
  return head !== undefined && isStop(graph, head, place, { before, after });
}

/**
 * Of graphs that are nodes of it, by the stops that they were compiled with: namespaces whose head an earlier attempt of the run left
 * where it was to stop. A head that an earlier run left has got its answer by this one. Graphs that a node calls without being declared
 * as its subgraphs are not seen, as the library sees no state of theirs either.
 *
 * @param from Where the attempt begins.
 * @throws what the saver throws.
 */
export async function stoppedWithin(
  graph: CompiledGraph,
  saver: BaseCheckpointSaver,
  runId: string,
  from: { readonly configurable: { readonly thread_id: string; readonly checkpoint_id?: string } },
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();

  async function look(level: CompiledGraph, place: GraphPlace): Promise<void> {
    const graphs = new Map<string, CompiledGraph>();
    for await (const [name, within] of level.getSubgraphsAsync()) graphs.set(name, within);
    if (graphs.size === 0) return;
    for (const { name, state } of (await graph.getState(place)).tasks) {
      const within = graphs.get(name);
      const namespace = placeOf(state)?.checkpoint_ns;
      if (within === undefined || namespace === undefined) continue;
      await lookWithin(within, within.checkpointer === true ? withoutTasks(namespace) : namespace);
    }
  }

  async function lookWithin(level: CompiledGraph, namespace: string): Promise<void> {
    const place = { configurable: { thread_id: from.configurable.thread_id, checkpoint_ns: namespace } };
    const head = await saver.getTuple(place);
    if (head === undefined) return;
    const stops = { before: level.interruptBefore, after: level.interruptAfter };
    const { run_id } = head.metadata as { readonly run_id?: string };
    if (run_id === runId && areAny(stops) && (await isStop(graph, head, place, stops))) found.add(namespace);
    else await look(level, place);
  }

  await look(graph, from);
  return found;
}

/** `graph` is the outermost one, which finds those within by their namespaces. */
async function isStop(
  graph: CompiledGraph,
  head: CheckpointTuple,
  place: GraphPlace,
  { before = [], after = [] }: Stops,
): Promise<boolean> {
  if (!changedSinceStop(head.checkpoint)) return false;
  const { next, metadata, parentConfig } = await graph.getState(place);
  if (isAmong(before, next)) return true;
  // The outermost one has come to its end; one within still stops after its last node.
  if (next.length === 0 && place.configurable?.checkpoint_ns === '') return false;
  if (metadata?.source !== 'loop' || parentConfig === undefined || after.length === 0) return false;
  const { tasks } = await graph.getState(parentConfig);
  return isAmong(
    after,
    tasks.map(({ name }) => name),
  );
}

function areAny({ before, after }: Stops): boolean {
  return (before?.length ?? 0) + (after?.length ?? 0) > 0;
}

function changedSinceStop({ channel_versions, versions_seen }: Checkpoint): boolean {
  const seen = versions_seen.__interrupt__ ?? {};
  return Object.entries(channel_versions).some(([channel, version]) => {
    const last = seen[channel];
    return last === undefined || version > last;
  });
}

/** The node that only puts the input in is hidden: `*` does not mean it. */
function isAmong(nodes: Nodes, names: readonly string[]): boolean {
  return names.some((name) => (nodes === '*' ? name !== '__start__' : nodes.includes(name)));
}

function placeOf(state: object | undefined): GraphPlace['configurable'] {
  return state !== undefined && 'configurable' in state ? (state as GraphPlace).configurable : undefined;
}

/** Where a graph keeps its state that goes on with it from one call to the next. */
function withoutTasks(namespace: string): string {
  return namespace
    .split('|')
    .map((part) => part.split(':')[0])
    .join('|');
}
