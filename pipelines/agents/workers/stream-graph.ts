import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { protocolMode } from '../protocol/protocol-mode.ts';
import { type GraphOptions, runGraph, type Take } from './run-graph.ts';
import { streamProtocol } from './stream-protocol.ts';

/** One event of a graph in a requested stream mode, before it is serialised. */
export interface Streamed {
  readonly mode: string;
  readonly event: string;
  readonly namespace: string;
  readonly data: unknown;
}

export interface StreamRequest {
  readonly modes: readonly string[];
  readonly subgraphs: boolean;
  readonly runId: string;
  /** Config and abort signal of the run, and further options of `stream`. */
  readonly options: GraphOptions;
  /** Returns a promise that the caller must await to yield the event loop; undefined if it need not yield yet. */
  readonly turn?: (() => Promise<void> | undefined) | undefined;
  /** LangChain callback handler for all child runs. */
  readonly handler?: object | undefined;
}

/** Stream modes that LangGraph supports with the same name and the same events. */
const sameModes = new Set(['values', 'updates', 'debug', 'custom', 'tasks', 'checkpoints', 'tools']);

/**
 * Runs a graph and passes its events to `take` in the stream modes of the API. Mode `messages-tuple` is LangGraph's
 * `messages`. Mode `messages` is derived from `messages-tuple` and from the states. Mode `events` contains events of
 * all child runs and is the only mode that needs the slower `streamEvents`. If the graph has no checkpointer, the
 * states of the root graph are passed under mode `''`; the outcome of the run contains the last of them.
 *
 * Graphs stream many small events, so `take` is synchronous to keep the cost per event low.
 *
 * @throws errors of the graph, and errors of `take`, which abort the graph.
 */
export async function streamGraph(
  graph: CompiledGraph,
  input: unknown,
  { modes, subgraphs, runId, options, turn, handler }: StreamRequest,
  take: Take<Streamed>,
): Promise<void> {
  const wanted = new Set(modes.length > 0 ? modes : ['values']);
  if (wanted.has(protocolMode)) {
    await streamProtocol(graph, input, { runId, options: withHandler(graph, options, handler), turn }, take);
    return;
  }
  const library = new Set([...wanted].filter((mode) => sameModes.has(mode)));
  if (wanted.has('messages') || wanted.has('messages-tuple')) library.add('messages');
  const withStates = !graph.checkpointer;
  if (wanted.has('messages') || withStates || library.size === 0) library.add('values');
  const legacyMessages = new OldMessages();
  const more = { subgraphs, streamMode: [...library], runId };

  const translate = function* (piece: unknown): Generator<Streamed> {
    const [path, mode, data] = (subgraphs ? piece : [[], ...(piece as unknown[])]) as [string[], string, unknown];
    const namespace = path.join('|');
    if (wanted.has(mode) && mode !== 'messages') yield { mode, event: mode, namespace, data };
    if (mode === 'messages') {
      if (wanted.has('messages-tuple')) yield { mode: 'messages-tuple', event: 'messages', namespace, data };
      if (wanted.has('messages')) {
        for (const [event, value] of legacyMessages.chunk(data)) yield { mode, event, namespace, data: value };
      }
    }
    if (mode === 'values' && namespace === '') {
      if (wanted.has('messages')) {
        for (const [event, value] of legacyMessages.values(data)) {
          yield { mode: 'messages', event, namespace, data: value };
        }
      }
      if (withStates) yield { mode: '', event: '', namespace, data };
    }
  };

  const takeEach = (all: Iterable<Streamed>) => {
    for (const each of all) take(each);
  };

  if (!wanted.has('events')) {
    const all = { ...withHandler(graph, options, handler), ...more };
    await runGraph(graph, input, all, (piece) => takeEach(translate(piece)), turn);
    return;
  }
  const callbacks = handler && { callbacks: [handler] };
  for await (const event of graph.streamEvents(input, { ...options, ...callbacks, ...more, version: 'v2' })) {
    // Chunks of the root graph are events of the other modes. Like the reference server, mode `events` omits them.
    if (event.event === 'on_chain_stream' && event.run_id === runId) {
      if (Array.isArray(event.data.chunk)) takeEach(translate(event.data.chunk));
    } else take({ mode: 'events', event: 'events', namespace: '', data: event });
    const turning = turn?.();
    if (turning !== undefined) await turning;
  }
}

/**
 * Returns options with which the handler receives all child runs. LangGraph initialises a handler in the options for
 * every event, but a handler in the config of the graph only once. So this function adds the handler to the config of
 * the graph, unless that config has callbacks.
 */
function withHandler(graph: CompiledGraph, options: GraphOptions, handler: object | undefined): GraphOptions {
  if (handler === undefined) return options;
  if (graph.config?.callbacks !== undefined) return { ...options, callbacks: [handler] };
  graph.config = { ...graph.config, callbacks: [handler] };
  return options;
}

/** A complete message or a chunk of a message, as graphs stream it. */
interface StreamedMessage {
  readonly id?: string;
  concat?(chunk: unknown): unknown;
}

/**
 * Produces the events of the legacy stream mode `messages`: `messages/metadata` at the first chunk of a message,
 * `messages/partial` with the accumulated message at each chunk, and `messages/complete` for new messages in the state.
 * Source: reference/agent-server.md §2.2.
 */
class OldMessages {
  readonly #soFar = new Map<string, unknown>();
  readonly #complete = new Set<string>();

  /** Returns the events for one chunk of LangGraph's mode `messages`. */
  *chunk(data: unknown): Generator<readonly [event: string, data: unknown]> {
    const [message, metadata] = data as [StreamedMessage, unknown];
    const { id } = message;
    if (id === undefined) return;
    const before = this.#soFar.get(id) as StreamedMessage | undefined;
    if (before === undefined) yield ['messages/metadata', { [id]: { metadata } }];
    const whole = before?.concat === undefined || message.concat === undefined ? message : before.concat(message);
    this.#soFar.set(id, whole);
    yield ['messages/partial', [whole]];
  }

  /** Returns the event for messages that earlier states did not contain, if there are any. */
  *values(state: unknown): Generator<readonly [event: string, data: unknown]> {
    const messages = typeof state === 'object' && state !== null && 'messages' in state ? state.messages : undefined;
    const fresh = (Array.isArray(messages) ? messages : []).filter(({ id }: StreamedMessage) => {
      if (id === undefined || this.#complete.has(id)) return false;
      this.#complete.add(id);
      this.#soFar.delete(id);
      return true;
    });
    if (fresh.length > 0) yield ['messages/complete', fresh];
  }
}
