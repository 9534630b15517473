import type { CheckpointReference } from '../runs/run.ts';
import type { Interrupt } from '../threads/thread.ts';
import { toGraphJson } from '../workers/child/graph-json.ts';

/**
 * The part of a compiled LangGraph graph that Runlake uses. It is a structural type, because a project may use a
 * different copy of LangGraph than Runlake.
 */
export interface CompiledGraph {
  readonly lg_is_pregel: true;
  checkpointer?: unknown;
  store?: unknown;
  /** Config that is bound to the graph. */
  config?: { readonly callbacks?: unknown };
  readonly name?: string;
  /** Default breakpoints; a run may override them. */
  readonly interruptBefore?: '*' | readonly string[];
  readonly interruptAfter?: '*' | readonly string[];
  /** The builder of the graph; absent if no builder created it. */
  readonly builder?: unknown;
  /** Returns a copy of the graph. Properties that are set on the copy do not change this graph. */
  withConfig(config: object): CompiledGraph;
  stream(input: unknown, options: object): Promise<AsyncIterable<unknown>>;
  streamEvents(input: unknown, options: object): AsyncIterable<GraphEvent>;
  getState(config: object, options?: { readonly subgraphs?: boolean }): Promise<Snapshot>;
  getStateHistory(config: object, options?: object): AsyncIterable<Snapshot>;
  bulkUpdateState(
    config: object,
    supersteps: readonly { readonly updates: readonly { readonly values?: unknown; readonly asNode?: string }[] }[],
  ): Promise<CheckpointConfig>;
  getGraphAsync(config: object): Promise<{ toJSON(): unknown }>;
  getSubgraphsAsync(namespace?: string, recurse?: boolean): AsyncIterable<[string, CompiledGraph]>;
}

/** A LangChain config that addresses a checkpoint. */
export interface CheckpointConfig {
  readonly configurable?: CheckpointReference & { readonly thread_id?: string };
}

export interface Snapshot {
  readonly values: unknown;
  readonly next: readonly string[];
  readonly config: CheckpointConfig;
  readonly parentConfig?: CheckpointConfig;
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly createdAt?: string;
  readonly tasks: readonly SnapshotTask[];
}

export interface SnapshotTask {
  readonly id: string;
  readonly name: string;
  readonly path?: unknown;
  readonly error?: unknown;
  readonly interrupts?: readonly { readonly id?: string; readonly value?: unknown }[];
  readonly result?: unknown;
  /** The state of the subgraph, or only the config that addresses it. */
  readonly state?: Snapshot | CheckpointConfig;
}

/** An event of `streamEvents`, version 2. */
interface GraphEvent {
  readonly event: string;
  readonly run_id: string;
  readonly data: { readonly chunk?: unknown };
}

export function isCompiledGraph(value: unknown): value is CompiledGraph {
  return typeof value === 'object' && value !== null && 'lg_is_pregel' in value && value.lg_is_pregel === true;
}

/**
 * Returns true if the value is an agent of `createAgent` (`langchain`). Use the `graph` of the agent, because copies of
 * the agent have no effect.
 */
export function isGraphWrapper(value: unknown): value is { readonly graph: CompiledGraph } {
  return typeof value === 'object' && value !== null && 'graph' in value && isCompiledGraph(value.graph);
}

export function isGraphBuilder(value: unknown): value is { compile(): unknown } {
  return typeof value === 'object' && value !== null && 'compile' in value && typeof value.compile === 'function';
}

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

/** The state of a run, with its open interrupts by task id. */
export interface RunState {
  /** JSON text. */
  readonly values: string;
  /** Nodes that would execute next; not empty if the graph is interrupted. */
  readonly next: readonly string[];
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>>;
}

/** Reads the state at the head of the thread from the checkpointer. @throws errors of the saver. */
export async function readStoredState(graph: CompiledGraph, threadId: string): Promise<RunState> {
  const { values, next, tasks } = await readSnapshot(graph, { configurable: { thread_id: threadId } });
  return { values: toGraphJson(values ?? {}), next: [...next], interrupts: collectInterrupts({ tasks, next }) };
}

/**
 * Converts the last state that a graph without a checkpointer streamed to its final state. Its run cannot be resumed.
 */
export function toStreamedState(values: unknown): RunState {
  return { values: toGraphJson(values ?? {}), next: [], interrupts: {} };
}

/**
 * Returns the open interrupts by task id, as plain JSON data. LangGraph also lists interrupts of tasks that were
 * resumed while other tasks of the step wait; this function excludes those interrupts.
 */
export function collectInterrupts({
  tasks,
  next,
}: Pick<Snapshot, 'tasks' | 'next'>): Record<string, readonly Interrupt[]> {
  const waiting = tasks.filter(
    ({ name, interrupts }) => interrupts !== undefined && interrupts.length > 0 && next.includes(name),
  );
  return Object.fromEntries(waiting.map((task) => [task.id, JSON.parse(toGraphJson(task.interrupts)) as Interrupt[]]));
}
