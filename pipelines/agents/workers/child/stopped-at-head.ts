/**
 * Detects whether an earlier attempt of a run left the run at a breakpoint (`interrupt_before`, `interrupt_after`).
 * LangGraph would treat an attempt that continues from this state as a resume and skip the breakpoint. This module
 * applies LangGraph's own rule: a graph is at a breakpoint if a channel has changed since the last interrupt, and one
 * of the named nodes is next (before) or was executed last (after).
 *
 * Risk: no public API returns whether a graph is at a breakpoint. The member `__interrupt__` of `versions_seen` is
 * private, and each graph brings its own version of the library. `library-versions.test.ts` fails if a version stores
 * this member differently.
 */
import type { BaseCheckpointSaver, Checkpoint, CheckpointTuple } from '@langchain/langgraph-checkpoint';
import type { CheckpointConfig, CompiledGraph } from '../../graphs/compiled-graph.ts';

/** Node names, or `*` for all nodes. */
type NodeSelection = '*' | readonly string[];

interface Breakpoints {
  readonly before: NodeSelection | undefined;
  readonly after: NodeSelection | undefined;
}

/**
 * Whether the root graph is at a breakpoint. Call it only if this run has written the head of the thread.
 *
 * @throws errors of the saver.
 */
export async function isStoppedAtHead(
  graph: CompiledGraph,
  saver: BaseCheckpointSaver,
  threadId: string,
  requested: Breakpoints,
): Promise<boolean> {
  const before = requested.before ?? graph.interruptBefore;
  const after = requested.after ?? graph.interruptAfter;
  const config = { configurable: { thread_id: threadId, checkpoint_ns: '' } };
  const head = hasBreakpoints({ before, after }) ? await saver.getTuple(config) : undefined;
  return head !== undefined && isAtBreakpoint(graph, head, config, { before, after });
}

/**
 * Returns the checkpoint namespaces of subgraphs that an earlier attempt of the run left at one of their compiled-in
 * breakpoints. Excludes subgraphs whose head was written by an earlier run, because this run resumes them. Also
 * excludes undeclared subgraphs, which a node calls from its own code, because LangGraph does not expose their state.
 *
 * @param from the thread and, if a checkpoint was requested, the checkpoint from which the attempt starts.
 * @throws errors of the saver.
 */
export async function findStoppedSubgraphs(
  graph: CompiledGraph,
  saver: BaseCheckpointSaver,
  runId: string,
  from: { readonly configurable: { readonly thread_id: string; readonly checkpoint_id?: string } },
): Promise<ReadonlySet<string>> {
  const found = new Set<string>();

  async function visit(level: CompiledGraph, config: CheckpointConfig): Promise<void> {
    const graphs = new Map<string, CompiledGraph>();
    for await (const [name, subgraph] of level.getSubgraphsAsync()) graphs.set(name, subgraph);
    if (graphs.size === 0) return;
    for (const { name, state } of (await graph.getState(config)).tasks) {
      const subgraph = graphs.get(name);
      const namespace = getConfigurable(state)?.checkpoint_ns;
      if (subgraph === undefined || namespace === undefined) continue;
      await visitSubgraph(subgraph, subgraph.checkpointer === true ? removeTaskIds(namespace) : namespace);
    }
  }

  async function visitSubgraph(level: CompiledGraph, namespace: string): Promise<void> {
    const config = { configurable: { thread_id: from.configurable.thread_id, checkpoint_ns: namespace } };
    const head = await saver.getTuple(config);
    if (head === undefined) return;
    const stops = { before: level.interruptBefore, after: level.interruptAfter };
    const { run_id } = head.metadata as { readonly run_id?: string };
    if (run_id === runId && hasBreakpoints(stops) && (await isAtBreakpoint(graph, head, config, stops)))
      found.add(namespace);
    else await visit(level, config);
  }

  await visit(graph, from);
  return found;
}

/** Whether `head` is at a breakpoint. `graph` is the root graph; the namespace in `config` selects a subgraph. */
async function isAtBreakpoint(
  graph: CompiledGraph,
  head: CheckpointTuple,
  config: CheckpointConfig,
  { before = [], after = [] }: Breakpoints,
): Promise<boolean> {
  if (!hasChangedSinceInterrupt(head.checkpoint)) return false;
  const { next, metadata, parentConfig } = await graph.getState(config);
  if (includesAny(before, next)) return true;
  // A root graph that has finished is not at a breakpoint, but a subgraph can be at the breakpoint after its last node.
  if (next.length === 0 && config.configurable?.checkpoint_ns === '') return false;
  if (metadata?.source !== 'loop' || parentConfig === undefined || after.length === 0) return false;
  const { tasks } = await graph.getState(parentConfig);
  return includesAny(
    after,
    tasks.map(({ name }) => name),
  );
}

function hasBreakpoints({ before, after }: Breakpoints): boolean {
  return (before?.length ?? 0) + (after?.length ?? 0) > 0;
}

function hasChangedSinceInterrupt({ channel_versions, versions_seen }: Checkpoint): boolean {
  const seen = versions_seen.__interrupt__ ?? {};
  return Object.entries(channel_versions).some(([channel, version]) => {
    const last = seen[channel];
    return last === undefined || version > last;
  });
}

/**
 * Returns true if `nodes` contains any of `names`. If `nodes` is `*`, it contains every node except `__start__`, the
 * hidden node that writes the input.
 */
function includesAny(nodes: NodeSelection, names: readonly string[]): boolean {
  return names.some((name) => (nodes === '*' ? name !== '__start__' : nodes.includes(name)));
}

function getConfigurable(state: object | undefined): CheckpointConfig['configurable'] {
  return state !== undefined && 'configurable' in state ? (state as CheckpointConfig).configurable : undefined;
}

/**
 * Removes the task ids from a checkpoint namespace. The result is the namespace of a subgraph with `checkpointer:
 * true`, which keeps its state across calls.
 */
function removeTaskIds(namespace: string): string {
  return namespace
    .split('|')
    .map((part) => part.split(':')[0])
    .join('|');
}
