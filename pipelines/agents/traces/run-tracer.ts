/**
 * The LangChain callback handler that collects the child runs of a graph run. It has the name and the interface of
 * LangChain's own tracer. Therefore functions that the `langsmith` package traces find their parents and report their
 * runs to this handler. It opens no connection. It extends no class of LangChain, so that it works with any copy of the
 * library. Source: `LangChainTracer` of @langchain/core 1.2, `RunTree` of langsmith 0.10.
 *
 * Risk: the packages look up a handler by this name and use its members `getRun`, `getRunTreeWithTracingConfig`,
 * `copyWithTracingConfig`, `updateFromRunTree`, `_getRunStoreKey` and `client`. These members are private, and each
 * graph brings its own versions of the packages. A public `BaseCallbackHandler` would not receive the functions that
 * `langsmith` traces. `library-versions.test.ts` fails if a version uses other members.
 */
import { RunTree } from 'langsmith/run_trees';
import { readGraphTracing } from '../../../infra/config/graph-tracing.ts';
import { ChildRunCollector, type OpenRun, type StartedRun } from './child-run-collector.ts';
import type { ChildRunBatch, TraceInstructions } from './trace-order.ts';

interface Named {
  readonly id?: readonly string[];
  readonly name?: string;
}

type Metadata = Readonly<Record<string, unknown>>;

interface LlmResult {
  readonly generations?: readonly (readonly { readonly message?: { readonly usage_metadata?: Usage } }[])[];
}

type Usage = Readonly<Record<string, unknown>>;

/** Metadata and tags that LangChain adds to all descendant runs that do not set their own. */
interface InheritedFields {
  readonly metadata?: Metadata | undefined;
  readonly tags?: readonly string[] | undefined;
}

/** Metadata keys for which the innermost tracing config takes precedence. */
const innermostWinsKeys = new Set(['ls_agent_type']);

export class RunTracer {
  readonly name = 'langchain_tracer';
  readonly lc_serializable = false;
  /** Makes LangChain call the handler synchronously and in order, not from a queue. */
  readonly awaitHandlers = true;
  readonly raiseError = false;
  readonly ignoreLLM = false;
  readonly ignoreChain = false;
  /** LangChain also applies this flag to tool callbacks. */
  readonly ignoreAgent = false;
  readonly ignoreRetriever = false;
  readonly ignoreCustomEvent = true;
  readonly projectName: string | undefined = undefined;
  readonly tracingMetadata: Metadata | undefined;
  readonly tracingTags: readonly string[];
  /** Client through which the `langsmith` package reports its runs. */
  readonly client: object;
  readonly #collector: ChildRunCollector;

  constructor(collector: ChildRunCollector, { metadata, tags = [] }: InheritedFields = {}) {
    this.#collector = collector;
    this.client = new LocalClient(collector);
    this.tracingMetadata = metadata;
    this.tracingTags = tags;
  }

  copy(): this {
    return this;
  }

  copyWithTracingConfig({ metadata = {}, tags = [] }: InheritedFields): RunTracer {
    const mergedMetadata: Record<string, unknown> = { ...metadata, ...this.tracingMetadata };
    for (const key of innermostWinsKeys) if (metadata[key] !== undefined) mergedMetadata[key] = metadata[key];
    return new RunTracer(this.#collector, {
      metadata: mergedMetadata,
      tags: [...new Set([...this.tracingTags, ...tags])],
    });
  }

  /** LangChain treats tracers with the same store key as one tracer. */
  _getRunStoreKey(): object {
    return this.#collector;
  }

  /**
   * Does nothing. LangChain reports the runs of the `langsmith` package here, but the client has already reported them.
   */
  updateFromRunTree(): void {}

  getRun(id: string): RunTree {
    return this.getRunTreeWithTracingConfig(id);
  }

  /** Returns a run tree. Functions that the `langsmith` package traces create their runs below it. */
  getRunTreeWithTracingConfig(id: string): RunTree {
    // Bypass the constructor of RunTree, which costs more than all other work for a run.
    return Object.assign(Object.create(RunTree.prototype) as RunTree, {
      ...toRunTree(this.#collector.find(id), this.#collector.rootId),
      client: this.client,
    });
  }

  handleChainStart(
    chain: Named,
    inputs: unknown,
    id: string,
    parentId?: string,
    tags?: string[],
    metadata?: Metadata,
    type?: string,
    name?: string,
    extra?: object,
  ): void {
    const { lc_defers_inputs: hasDeferredInputs, ...rest } = (extra ?? {}) as { lc_defers_inputs?: boolean };
    this.#begin(chain, {
      id,
      parentId,
      name,
      type: type ?? 'chain',
      inputs,
      tags,
      metadata,
      extra: rest,
      hasDeferredInputs,
    });
  }

  handleChainEnd(
    outputs: unknown,
    id: string,
    _parentId?: string,
    _tags?: string[],
    more?: { inputs?: unknown },
  ): void {
    this.#collector.end(id, { outputs: outputs ?? {}, inputs: more?.inputs });
  }

  handleChainError(
    error: unknown,
    id: string,
    _parentId?: string,
    _tags?: string[],
    more?: { inputs?: unknown },
  ): void {
    this.#collector.end(id, { error: formatError(error), inputs: more?.inputs });
  }

  handleLLMStart(
    model: Named,
    prompts: unknown,
    id: string,
    parentId?: string,
    extra?: object,
    tags?: string[],
    metadata?: Metadata,
    name?: string,
  ): void {
    this.#begin(model, { id, parentId, name, type: 'llm', inputs: { prompts }, tags, metadata, extra });
  }

  handleChatModelStart(
    model: Named,
    messages: unknown,
    id: string,
    parentId?: string,
    extra?: object,
    tags?: string[],
    metadata?: Metadata,
    name?: string,
  ): void {
    this.#begin(model, { id, parentId, name, type: 'llm', inputs: { messages }, tags, metadata, extra });
  }

  handleLLMNewToken(_token: string, _indices: unknown, id: string): void {
    this.#collector.token(id);
  }

  handleLLMEnd(outputs: LlmResult, id: string, _parentId?: string, _tags?: string[], extra?: object): void {
    const usage = sumUsage(outputs);
    this.#collector.end(id, { outputs, extra, ...(usage && { metadata: { usage_metadata: usage } }) });
  }

  handleLLMError(error: unknown, id: string, _parentId?: string, _tags?: string[], extra?: object): void {
    this.#collector.end(id, { error: formatError(error), extra });
  }

  handleToolStart(
    tool: Named,
    input: string,
    id: string,
    parentId?: string,
    tags?: string[],
    metadata?: Metadata,
    name?: string,
  ): void {
    this.#begin(tool, { id, parentId, name, type: 'tool', inputs: parseArguments(input), tags, metadata });
  }

  handleToolEnd(output: unknown, id: string): void {
    this.#collector.end(id, { outputs: { output } });
  }

  handleToolError(error: unknown, id: string): void {
    this.#collector.end(id, { error: formatError(error) });
  }

  handleRetrieverStart(
    retriever: Named,
    query: string,
    id: string,
    parentId?: string,
    tags?: string[],
    metadata?: Metadata,
    name?: string,
  ): void {
    this.#begin(retriever, { id, parentId, name, type: 'retriever', inputs: { query }, tags, metadata });
  }

  handleRetrieverEnd(documents: unknown, id: string): void {
    this.#collector.end(id, { outputs: { documents } });
  }

  handleRetrieverError(error: unknown, id: string): void {
    this.#collector.end(id, { error: formatError(error) });
  }

  #begin(
    serialized: Named | undefined,
    run: Omit<StartedRun, 'name' | 'tags' | 'metadata'> & {
      readonly name: string | undefined;
      readonly tags: readonly string[] | undefined;
      readonly metadata: Metadata | undefined;
    },
  ): void {
    const metadata = { ...this.tracingMetadata, ...run.metadata };
    for (const key of innermostWinsKeys) {
      if (this.tracingMetadata?.[key] !== undefined) metadata[key] = this.tracingMetadata[key];
    }
    this.#collector.begin({
      ...run,
      name: run.name ?? serialized?.id?.at(-1) ?? serialized?.name ?? 'Unnamed',
      tags: this.tracingTags.length > 0 ? [...new Set([...(run.tags ?? []), ...this.tracingTags])] : (run.tags ?? []),
      metadata,
      extra: { ...run.extra, runtime: runtimeMetadata },
      serialized,
    });
  }
}

const runtimeMetadata = { library: 'langchain-js', runtime: 'node' };

/** The part of the `langsmith` client interface that its run trees use. */
class LocalClient {
  readonly #collector: ChildRunCollector;

  constructor(collector: ChildRunCollector) {
    this.#collector = collector;
  }

  async createRun({ id, parent_run_id, trace_id, ...run }: RunTreeRun): Promise<void> {
    // Ignore runs of a separate trace that project code has started inside this trace.
    if (trace_id !== this.#collector.rootId) return;
    const { metadata = {}, ...extra } = run.extra ?? {};
    this.#collector.begin({
      id,
      parentId: parent_run_id,
      name: run.name,
      type: run.run_type ?? 'chain',
      inputs: run.inputs,
      tags: run.tags ?? [],
      metadata,
      extra,
      serialized: run.serialized,
      order: run.dotted_order,
    });
    await this.updateRun(id, run);
  }

  async updateRun(id: string, run: Omit<RunTreeRun, 'id'>): Promise<void> {
    const { events = [], end_time, error, outputs, inputs, extra = {} } = run;
    if (events.some((event) => event.name === 'new_token')) this.#collector.token(id);
    const { metadata, ...rest } = extra;
    if (end_time != null || error != null) {
      this.#collector.end(id, { outputs, error: error ?? undefined, inputs, metadata, extra: rest });
    }
  }

  async awaitPendingTraceBatches(): Promise<void> {}

  async flush(): Promise<void> {}
}

interface RunTreeRun {
  readonly id: string;
  readonly name: string;
  readonly run_type?: string;
  readonly parent_run_id?: string;
  readonly trace_id?: string;
  readonly dotted_order?: string;
  readonly inputs?: unknown;
  readonly outputs?: unknown;
  readonly error?: string | null;
  readonly end_time?: unknown;
  readonly tags?: readonly string[];
  readonly extra?: { readonly metadata?: Metadata };
  readonly serialized?: unknown;
  readonly events?: readonly { readonly name?: string }[];
}

/**
 * Discards all pushed elements. Runs are reported through the client, and a node with a million child runs must not
 * keep them in memory.
 */
class DiscardingArray extends Array<object> {
  override push(): number {
    return 0;
  }
}
const discardingArray = new DiscardingArray();

function toRunTree(run: OpenRun, rootId: string): object {
  return {
    id: run.id,
    name: run.name,
    run_type: run.type,
    trace_id: rootId,
    dotted_order: run.order,
    tracingEnabled: true,
    start_time: Date.now(),
    execution_order: 1,
    child_execution_order: 1,
    child_runs: discardingArray,
    events: [],
    tags: [...run.tags],
    inputs: {},
    extra: { metadata: { ...run.metadata } },
  };
}

/** Parses tool arguments. LangChain passes them as text; arguments that are objects are passed as JSON text. */
function parseArguments(input: string): unknown {
  try {
    return input.startsWith('{') ? JSON.parse(input) : input;
  } catch {
    return input;
  }
}

function formatError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.stack ? `${error.message}\n\n${error.stack}` : error.message;
}

/** Adds up the token usage of all messages of a model call. */
function sumUsage({ generations = [] }: LlmResult): Usage | undefined {
  let usage: Usage | undefined;
  for (const { message } of generations.flat()) {
    if (message?.usage_metadata !== undefined) usage = addUsage(usage, message.usage_metadata);
  }
  return usage;
}

function addUsage(a: Usage | undefined, b: Usage): Usage {
  if (a === undefined) return b;
  const sum: Record<string, unknown> = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const before = sum[key];
    if (typeof value === 'number') sum[key] = (typeof before === 'number' ? before : 0) + value;
    else if (typeof value === 'object' && value !== null)
      sum[key] = addUsage(before as Usage | undefined, value as Usage);
  }
  return sum;
}

export interface OpenTracer {
  readonly handler: RunTracer;
  /** Stops tracing. Runs that have not ended end with the error `reason`. */
  close(reason: string): void;
}

/**
 * Creates a tracer for one attempt of a run. Returns undefined if the environment variables of the project configure or
 * disable tracing.
 */
export function openTracer(order: TraceInstructions, onFlush: (runs: ChildRunBatch) => void): OpenTracer | undefined {
  const { state, ...hides } = readGraphTracing();
  if (state !== 'unspecified') return undefined;
  const collector = new ChildRunCollector({ order, onFlush, ...hides });
  return { handler: new RunTracer(collector), close: (reason) => collector.close(reason) };
}
