import { convertToProtocolEvent, createLifecycleTransformer, STREAM_EVENTS_V3_MODES } from '@langchain/langgraph';
import { settlesBeforeTimeout } from '../../../../infra/timeouts/with-timeout.ts';
import type { CompiledGraph } from '../../graphs/compiled-graph.ts';
import { interruptEvent, protocolMode } from '../../streams/stream-types.ts';

/** One event that a graph emits in a requested stream mode, before serialisation. */
export interface GraphStreamEvent {
  readonly mode: string;
  readonly event: string;
  readonly namespace: string;
  readonly data: unknown;
}

export interface StreamRequest {
  readonly modes: readonly string[];
  readonly subgraphs: boolean;
  readonly runId: string;
  /** Config and abort signal of the run, and other options for `stream`. */
  readonly options: GraphOptions;
  /**
   * Returns a promise if the caller must yield to the event loop by awaiting it; undefined if the caller need not yield
   * yet.
   */
  readonly turn?: (() => Promise<void> | undefined) | undefined;
  /** LangChain callback handlers that receive all child runs. */
  readonly handlers?: readonly object[];
}

/** Stream modes that LangGraph supports under the same name and with the same events. */
const unchangedModes = new Set(['values', 'updates', 'debug', 'custom', 'tasks', 'checkpoints', 'tools']);

/**
 * Runs a graph and passes its events to `take` in the stream modes of the API. Mode `messages-tuple` is LangGraph's
 * `messages`. Mode `messages` is derived from `messages-tuple` and from the states. Mode `events` contains events of
 * all child runs and is the only mode that needs the slower `streamEvents`. If the graph has no checkpointer, the
 * states of the root graph are passed in mode `''`; the outcome of the run contains the last state.
 *
 * `take` is synchronous to keep the cost per event low, because graphs stream many small events.
 *
 * @throws errors of the graph, and errors of `take`, which abort the graph.
 */
export async function streamGraph(
  graph: CompiledGraph,
  input: unknown,
  { modes, subgraphs, runId, options, turn, handlers = [] }: StreamRequest,
  take: Take<GraphStreamEvent>,
): Promise<void> {
  const requestedModes = new Set(modes.length > 0 ? modes : ['values']);
  if (requestedModes.has(protocolMode)) {
    await streamProtocol(graph, input, { runId, options: addHandlers(graph, options, handlers), turn }, take);
    return;
  }
  const library = new Set([...requestedModes].filter((mode) => unchangedModes.has(mode)));
  if (requestedModes.has('messages') || requestedModes.has('messages-tuple')) library.add('messages');
  const needsStates = !graph.checkpointer;
  if (requestedModes.has('messages') || needsStates || library.size === 0) library.add('values');
  const legacyMessages = new LegacyMessagesMode();
  const more = { subgraphs, streamMode: [...library], runId };

  const translate = function* (chunk: unknown): Generator<GraphStreamEvent> {
    const [path, mode, data] = (subgraphs ? chunk : [[], ...(chunk as unknown[])]) as [string[], string, unknown];
    const namespace = path.join('|');
    if (requestedModes.has(mode) && mode !== 'messages') yield { mode, event: mode, namespace, data };
    if (mode === 'messages') {
      if (requestedModes.has('messages-tuple')) yield { mode: 'messages-tuple', event: 'messages', namespace, data };
      if (requestedModes.has('messages')) {
        for (const [event, value] of legacyMessages.chunk(data)) yield { mode, event, namespace, data: value };
      }
    }
    if (mode === 'values' && namespace === '') {
      if (requestedModes.has('messages')) {
        for (const [event, value] of legacyMessages.values(data)) {
          yield { mode: 'messages', event, namespace, data: value };
        }
      }
      if (needsStates) yield { mode: '', event: '', namespace, data };
    }
  };

  const takeEach = (all: Iterable<GraphStreamEvent>) => {
    for (const each of all) take(each);
  };

  if (!requestedModes.has('events')) {
    const all = { ...addHandlers(graph, options, handlers), ...more };
    await runGraph(graph, input, all, (chunk) => takeEach(translate(chunk)), turn);
    return;
  }
  const callbacks = { callbacks: [...handlers] };
  for await (const event of graph.streamEvents(input, { ...options, ...callbacks, ...more, version: 'v2' })) {
    // Chunks of the root graph are the events of the other modes. Mode `events` omits them, as in the reference server.
    if (event.event === 'on_chain_stream' && event.run_id === runId) {
      if (Array.isArray(event.data.chunk)) takeEach(translate(event.data.chunk));
    } else take({ mode: 'events', event: 'events', namespace: '', data: event });
    const turning = turn?.();
    if (turning !== undefined) await turning;
  }
}

/**
 * Returns options with which the handlers receive all child runs. LangGraph initialises handlers that are passed in the
 * options for every event, but handlers in the config of the graph only once. Therefore this function adds the handlers
 * to the config of the graph, unless that config already has callbacks.
 */
function addHandlers(graph: CompiledGraph, options: GraphOptions, handlers: readonly object[]): GraphOptions {
  if (handlers.length === 0) return options;
  const callbacks = [...handlers];
  if (graph.config?.callbacks !== undefined) return { ...options, callbacks };
  graph.config = { ...graph.config, callbacks };
  return options;
}

/** A complete message or a message chunk, in the form in which graphs stream it. */
interface StreamedMessage {
  readonly id?: string;
  concat?(chunk: unknown): unknown;
}

/**
 * Produces the events of the legacy stream mode `messages`: `messages/metadata` for the first chunk of a message,
 * `messages/partial` with the accumulated message for each chunk, and `messages/complete` for new messages in the
 * state. Source: LangGraph Platform API, stream mode `messages`.
 */
class LegacyMessagesMode {
  readonly #accumulated = new Map<string, unknown>();
  readonly #complete = new Set<string>();

  /** Returns the events for one chunk of LangGraph's mode `messages`. */
  *chunk(data: unknown): Generator<readonly [event: string, data: unknown]> {
    const [message, metadata] = data as [StreamedMessage, unknown];
    const { id } = message;
    if (id === undefined) return;
    const before = this.#accumulated.get(id) as StreamedMessage | undefined;
    if (before === undefined) yield ['messages/metadata', { [id]: { metadata } }];
    const whole = before?.concat === undefined || message.concat === undefined ? message : before.concat(message);
    this.#accumulated.set(id, whole);
    yield ['messages/partial', [whole]];
  }

  /** Returns an event with the messages that earlier states did not contain, if there are such messages. */
  *values(state: unknown): Generator<readonly [event: string, data: unknown]> {
    const messages = typeof state === 'object' && state !== null && 'messages' in state ? state.messages : undefined;
    const fresh = (Array.isArray(messages) ? messages : []).filter(({ id }: StreamedMessage) => {
      if (id === undefined || this.#complete.has(id)) return false;
      this.#complete.add(id);
      this.#accumulated.delete(id);
      return true;
    });
    if (fresh.length > 0) yield ['messages/complete', fresh];
  }
}

type ProtocolEvent = ReturnType<typeof convertToProtocolEvent>[number];

/**
 * Modes that are used only by the protocol. The other modes are streamed under their own names, and readers convert
 * their events to protocol events.
 */
const protocolOnlyModes = new Set(['messages', 'checkpoints']);

interface StreamedInterrupt {
  readonly id?: string;
  readonly value?: unknown;
}

/**
 * Runs a graph and passes the events of the event-stream protocol to `take`. Values, updates, custom, tasks and tools
 * keep their stream modes. Messages (as content blocks), checkpoints, lifecycle events of subgraphs and interrupts use
 * the mode of the protocol; the data of each event is `{node?, data}`. If the graph has no checkpointer, the states of
 * the root graph are passed in mode `''`. The lifecycle events of the run itself are emitted by the executor.
 */
async function streamProtocol(
  graph: CompiledGraph,
  input: unknown,
  { runId, options, turn }: Pick<StreamRequest, 'runId' | 'options' | 'turn'>,
  take: Take<GraphStreamEvent>,
): Promise<void> {
  const needsStates = !graph.checkpointer;
  const lifecycleEvents: ProtocolEvent[] = [];
  const lifecycle = createLifecycleTransformer({ emitRootOnRegister: false });
  lifecycle.init();
  lifecycle.onRegister?.({ push: (_namespace, event) => void lifecycleEvents.push(event) });
  const takeLifecycleEvents = function* (): Generator<GraphStreamEvent> {
    for (const { method, params } of lifecycleEvents.splice(0)) yield createProtocolEvent(method, params);
  };
  const reported = new Set<string>();

  const translate = function* (chunk: unknown): Generator<GraphStreamEvent> {
    const [namespace, mode, payload] = chunk as [string[], string, unknown];
    for (const event of convertToProtocolEvent({ namespace, mode: mode as 'values', payload, seq: 0 })) {
      lifecycle.process(event);
      yield* takeLifecycleEvents();
      if (!protocolOnlyModes.has(mode)) yield { mode, event: mode, namespace: namespace.join('|'), data: payload };
      // Skip message chunks of LangGraph versions that stream them without conversion to protocol events.
      else if (mode !== 'messages' || 'event' in (event.params.data as object))
        yield createProtocolEvent(event.method, event.params);
    }
    for (const interrupt of listNewInterrupts(mode, payload, reported)) {
      const data = { event: 'requested', id: interrupt.interrupt_id };
      lifecycle.process({
        ...{ type: 'event', seq: 0, method: 'input' },
        params: { namespace, timestamp: 0, data },
      } as ProtocolEvent);
      yield createProtocolEvent(interruptEvent, { namespace, data: interrupt });
    }
    if (needsStates && mode === 'values' && namespace.length === 0) {
      yield { mode: '', event: '', namespace: '', data: payload };
    }
  };

  const takeEach = (all: Iterable<GraphStreamEvent>) => {
    for (const each of all) take(each);
  };

  const streamOptions = {
    ...{ ...options, runId, subgraphs: true, version: 'v3' },
    streamMode: [...STREAM_EVENTS_V3_MODES],
  };
  try {
    await runGraph(graph, input, streamOptions, (chunk) => takeEach(translate(chunk)), turn);
  } catch (error) {
    lifecycle.fail?.(error);
    takeEach(takeLifecycleEvents());
    throw error;
  }
  await lifecycle.finalize?.();
  takeEach(takeLifecycleEvents());
}

function createProtocolEvent(
  event: string,
  params: { readonly namespace: readonly string[]; readonly node?: string | undefined; readonly data: unknown },
): GraphStreamEvent {
  const { namespace, node, data } = params;
  return { mode: protocolMode, event, namespace: namespace.join('|'), data: { ...(node && { node }), data } };
}

/** Returns the interrupts that have not been reported yet. A subgraph and all its parents stream the same interrupt. */
function* listNewInterrupts(mode: string, payload: unknown, reported: Set<string>) {
  if (mode !== 'values' && mode !== 'updates') return;
  if (typeof payload !== 'object' || payload === null || !('__interrupt__' in payload)) return;
  const { __interrupt__: interrupts } = payload as { readonly __interrupt__: unknown };
  if (!Array.isArray(interrupts)) return;
  for (const { id, value } of interrupts as readonly StreamedInterrupt[]) {
    if (id === undefined || reported.has(id)) continue;
    reported.add(id);
    // The protocol defines `payload`, but the Python client reads `value`.
    yield { interrupt_id: id, payload: value, value };
  }
}

/** Consumes one value synchronously. The implementation buffers values that it cannot send yet, up to a limit. */
export type Take<Value> = (value: Value) => void;

/** Options for the `stream` method of a graph. */
export interface GraphOptions {
  readonly signal?: AbortSignal;
  readonly [name: string]: unknown;
}

const stopTimeoutMs = 1_000;

type StreamIterator = (input: unknown, config: object) => AsyncGenerator<unknown>;

interface StreamingGraph extends CompiledGraph {
  _streamIterator?: StreamIterator;
}

/**
 * Runs a graph with its `stream` method and passes each streamed chunk to `take`, in order. Calls for the same graph
 * instance must not overlap.
 *
 * `stream` pipes the output of a graph through three internal streams. An error of the graph drops the chunks that are
 * buffered in these streams, and for a small chunk the streams cost more than all other work. Therefore this function
 * consumes the chunks at their source, the `_streamIterator` of the LangChain Runnable. `stream` still sets up config
 * and context and handles the abort signal.
 *
 * Risk: `_streamIterator` is private, and each graph brings its own version of the library. If `stream` of a version
 * does not call `_streamIterator`, chunks pass through `stream` with the disadvantages above, and `run-graph.test.ts`
 * and `library-versions.test.ts` fail.
 *
 * Chunks are consumed as soon as they are produced, because LangGraph's own queue is unbounded and becomes slower as it
 * grows. If `turn` returns a promise, the function awaits it to yield to the event loop.
 *
 * Resolves when the graph has ended. Rejects when the signal is aborted; later chunks are dropped. With the durability
 * `exit`, LangGraph writes the state when it ends, which is after `stream` has rejected. Therefore this function waits
 * for that end, at most {@link stopTimeoutMs}, because code of the project can delay it.
 *
 * @throws errors of the graph, and errors of `take`, which abort the graph.
 */
export async function runGraph(
  graph: CompiledGraph,
  input: unknown,
  { signal, ...options }: GraphOptions,
  take: Take<unknown>,
  turn: () => Promise<void> | undefined = () => undefined,
): Promise<void> {
  const stop = new AbortController();
  const abort = () => stop.abort(signal?.reason);
  signal?.addEventListener('abort', abort, { once: true });
  if (signal?.aborted) abort();
  const takeOne = (chunk: unknown) => {
    try {
      take(chunk);
    } catch (error) {
      stop.abort(error);
      throw error;
    }
  };
  let taken: Promise<void> = Promise.resolve();
  const streaming: StreamingGraph = graph;
  const source = streaming._streamIterator;
  const takeAll = async (source: StreamIterator, args: Parameters<StreamIterator>) => {
    for await (const chunk of source.apply(graph, args)) {
      if (stop.signal.aborted) return;
      takeOne(chunk);
      const turning = turn();
      if (turning !== undefined) await turning;
    }
  };
  if (source !== undefined) {
    // This iterator consumes all chunks in its first `next`, in the async context of the caller, and ends without a
    // value.
    const createConsumingIterator = (...args: Parameters<StreamIterator>) => ({
      next: () => {
        taken = takeAll(source, args);
        return taken.then(() => ({ done: true, value: undefined }));
      },
      return: async () => ({ done: true, value: undefined }),
    });
    streaming._streamIterator = createConsumingIterator as unknown as StreamIterator;
  }
  try {
    for await (const chunk of await graph.stream(input, { ...options, signal: stop.signal })) takeOne(chunk);
  } finally {
    if (stop.signal.aborted) await settlesBeforeTimeout(taken, stopTimeoutMs);
    delete streaming._streamIterator;
    signal?.removeEventListener('abort', abort);
  }
}
