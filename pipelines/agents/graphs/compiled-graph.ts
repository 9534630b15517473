/**
 * A compiled graph, as far as it is used here. Said by shape and not by class: a project may have another copy of the library than
 * Runlake has.
 */
export interface CompiledGraph {
  readonly lg_is_pregel: true;
  checkpointer?: unknown;
  store?: unknown;
  /** That it was bound to. */
  config?: { readonly callbacks?: unknown };
  readonly name?: string;
  /** Where it stops unless a run says otherwise. */
  readonly interruptBefore?: '*' | readonly string[];
  readonly interruptAfter?: '*' | readonly string[];
  /** Of graphs made by a builder. */
  readonly builder?: unknown;
  stream(input: unknown, options: object): Promise<AsyncIterable<unknown>>;
  streamEvents(input: unknown, options: object): AsyncIterable<GraphEvent>;
  getState(config: object, options?: { readonly subgraphs?: boolean }): Promise<Snapshot>;
  getStateHistory(config: object, options?: object): AsyncIterable<Snapshot>;
  bulkUpdateState(
    config: object,
    supersteps: readonly { readonly updates: readonly { readonly values?: unknown; readonly asNode?: string }[] }[],
  ): Promise<GraphPlace>;
  getGraphAsync(config: object): Promise<{ toJSON(): unknown }>;
  getSubgraphsAsync(namespace?: string, recurse?: boolean): AsyncIterable<[string, CompiledGraph]>;
}

/** Where a state is kept: a LangChain config. */
export interface GraphPlace {
  readonly configurable?: {
    readonly thread_id?: string;
    readonly checkpoint_id?: string;
    readonly checkpoint_ns?: string;
    readonly checkpoint_map?: Readonly<Record<string, string>>;
  };
}

export interface Snapshot {
  readonly values: unknown;
  readonly next: readonly string[];
  readonly config: GraphPlace;
  readonly parentConfig?: GraphPlace;
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
  /** The state of the subgraph, or only where that is kept. */
  readonly state?: Snapshot | GraphPlace;
}

/** An event of `streamEvents`, version 2. */
export interface GraphEvent {
  readonly event: string;
  readonly run_id: string;
  readonly data: { readonly chunk?: unknown };
}

export function isCompiledGraph(value: unknown): value is CompiledGraph {
  return typeof value === 'object' && value !== null && 'lg_is_pregel' in value && value.lg_is_pregel === true;
}

/** An agent that `createAgent` of `langchain` makes. Its own methods need the very object; those of its graph do not. */
export function isGraphWrapper(value: unknown): value is { readonly graph: CompiledGraph } {
  return typeof value === 'object' && value !== null && 'graph' in value && isCompiledGraph(value.graph);
}

export function isGraphBuilder(value: unknown): value is { compile(): unknown } {
  return typeof value === 'object' && value !== null && 'compile' in value && typeof value.compile === 'function';
}
