/**
 * The callback handler that sees what runs inside of a graph. It stands in the place of LangChain's own tracer, by its name and shape, so
 * that functions of a project that are traced by the `langsmith` package find their parents and hand their runs over here, too, and opens
 * no connection. Said by shape, so that any copy of the library takes it.
 * Source: `LangChainTracer` of @langchain/core 1.2, `RunTree` of langsmith 0.10.
 */
import { RunTree } from 'langsmith/run_trees';
import type { BegunRun, ChildRunCollector, OpenRun } from './child-run-collector.ts';

interface Named {
  readonly id?: readonly string[];
  readonly name?: string;
}

type Metadata = Readonly<Record<string, unknown>>;

interface Generations {
  readonly generations?: readonly (readonly { readonly message?: { readonly usage_metadata?: Usage } }[])[];
}

type Usage = Readonly<Record<string, unknown>>;

/** What the library adds to all runs below a place, where they do not say it themselves. */
interface Inherited {
  readonly metadata?: Metadata | undefined;
  readonly tags?: readonly string[] | undefined;
}

/** The one name that the nearest place decides. */
const nearestWins = new Set(['ls_agent_type']);

export class RunTracer {
  readonly name = 'langchain_tracer';
  readonly lc_serializable = false;
  /** Called at once and in order, not from a queue. */
  readonly awaitHandlers = true;
  readonly raiseError = false;
  readonly ignoreLLM = false;
  readonly ignoreChain = false;
  /** Tools, too, are told by it. */
  readonly ignoreAgent = false;
  readonly ignoreRetriever = false;
  readonly ignoreCustomEvent = true;
  readonly projectName: string | undefined = undefined;
  readonly tracingMetadata: Metadata | undefined;
  readonly tracingTags: readonly string[];
  /** What runs that the `langsmith` package makes are sent with. */
  readonly client: object;
  readonly #collector: ChildRunCollector;

  constructor(collector: ChildRunCollector, { metadata, tags = [] }: Inherited = {}) {
    this.#collector = collector;
    this.client = new LocalClient(collector);
    this.tracingMetadata = metadata;
    this.tracingTags = tags;
  }

  copy(): this {
    return this;
  }

  copyWithTracingConfig({ metadata = {}, tags = [] }: Inherited): RunTracer {
    const merged: Record<string, unknown> = { ...metadata, ...this.tracingMetadata };
    for (const key of nearestWins) if (metadata[key] !== undefined) merged[key] = metadata[key];
    return new RunTracer(this.#collector, { metadata: merged, tags: [...new Set([...this.tracingTags, ...tags])] });
  }

  /** The library takes tracers of the same store for one. */
  _getRunStoreKey(): object {
    return this.#collector;
  }

  /** The library tells it of a run of the `langsmith` package, which came by the client already. */
  updateFromRunTree(): void {}

  getRun(id: string): RunTree {
    return this.getRunTreeWithTracingConfig(id);
  }

  /** What functions that are traced by the `langsmith` package make their runs below. */
  getRunTreeWithTracingConfig(id: string): RunTree {
    // Its constructor costs more than all the rest of a run.
    return Object.assign(Object.create(RunTree.prototype) as RunTree, {
      ...treeOf(this.#collector.find(id), this.#collector.rootId),
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
    const { lc_defers_inputs: deferred, ...rest } = (extra ?? {}) as { lc_defers_inputs?: boolean };
    this.#begin(chain, { id, parentId, name, type: type ?? 'chain', inputs, tags, metadata, extra: rest, deferred });
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
    this.#collector.end(id, { error: errorText(error), inputs: more?.inputs });
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

  handleLLMNewToken(_token: string, _place: unknown, id: string): void {
    this.#collector.token(id);
  }

  handleLLMEnd(outputs: Generations, id: string, _parentId?: string, _tags?: string[], extra?: object): void {
    const usage = usageOf(outputs);
    this.#collector.end(id, { outputs, extra, ...(usage && { metadata: { usage_metadata: usage } }) });
  }

  handleLLMError(error: unknown, id: string, _parentId?: string, _tags?: string[], extra?: object): void {
    this.#collector.end(id, { error: errorText(error), extra });
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
    this.#begin(tool, { id, parentId, name, type: 'tool', inputs: argumentsOf(input), tags, metadata });
  }

  handleToolEnd(output: unknown, id: string): void {
    this.#collector.end(id, { outputs: { output } });
  }

  handleToolError(error: unknown, id: string): void {
    this.#collector.end(id, { error: errorText(error) });
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
    this.#collector.end(id, { error: errorText(error) });
  }

  #begin(
    serialized: Named | undefined,
    run: Omit<BegunRun, 'name' | 'tags' | 'metadata'> & {
      readonly name: string | undefined;
      readonly tags: readonly string[] | undefined;
      readonly metadata: Metadata | undefined;
    },
  ): void {
    const metadata = { ...this.tracingMetadata, ...run.metadata };
    for (const key of nearestWins) {
      if (this.tracingMetadata?.[key] !== undefined) metadata[key] = this.tracingMetadata[key];
    }
    this.#collector.begin({
      ...run,
      name: run.name ?? serialized?.id?.at(-1) ?? serialized?.name ?? 'Unnamed',
      tags: this.tracingTags.length > 0 ? [...new Set([...(run.tags ?? []), ...this.tracingTags])] : (run.tags ?? []),
      metadata,
      extra: { ...run.extra, runtime },
      serialized,
    });
  }
}

const runtime = { library: 'langchain-js', runtime: 'node' };

/** The part of a client of the `langsmith` package that its runs use. */
class LocalClient {
  readonly #collector: ChildRunCollector;

  constructor(collector: ChildRunCollector) {
    this.#collector = collector;
  }

  async createRun({ id, parent_run_id, trace_id, ...run }: RunOfTree): Promise<void> {
    // A trace of its own, made in the midst of this one, is nobody's to count.
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

  async updateRun(id: string, run: Omit<RunOfTree, 'id'>): Promise<void> {
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

interface RunOfTree {
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

/** Runs below a node go by the client, each by itself: a node that makes a million of them must not hold them. */
class Forgetful extends Array<object> {
  override push(): number {
    return 0;
  }
}
const forgetful = new Forgetful();

function treeOf(run: OpenRun, rootId: string): object {
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
    child_runs: forgetful,
    events: [],
    tags: [...run.tags],
    inputs: {},
    extra: { metadata: { ...run.metadata } },
  };
}

/** Arguments of a tool come as text, JSON where they are an object. */
function argumentsOf(input: string): unknown {
  try {
    return input.startsWith('{') ? JSON.parse(input) : input;
  } catch {
    return input;
  }
}

function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.stack ? `${error.message}\n\n${error.stack}` : error.message;
}

/** Tokens of all messages that a call made, added up. */
function usageOf({ generations = [] }: Generations): Usage | undefined {
  let usage: Usage | undefined;
  for (const { message } of generations.flat()) {
    if (message?.usage_metadata !== undefined) usage = sumOf(usage, message.usage_metadata);
  }
  return usage;
}

function sumOf(a: Usage | undefined, b: Usage): Usage {
  if (a === undefined) return b;
  const sum: Record<string, unknown> = { ...a };
  for (const [key, value] of Object.entries(b)) {
    const before = sum[key];
    if (typeof value === 'number') sum[key] = (typeof before === 'number' ? before : 0) + value;
    else if (typeof value === 'object' && value !== null) sum[key] = sumOf(before as Usage | undefined, value as Usage);
  }
  return sum;
}
