import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { protocolMode } from '../protocol/protocol-mode.ts';
import { OldMessages } from './old-messages.ts';
import { type GraphOptions, runGraph, type Take } from './run-graph.ts';
import { streamProtocol } from './stream-protocol.ts';

/** What a graph streamed, in the modes that were asked for, not yet as text. */
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
  /** Config of the run, with its signal, and what else `stream` takes. */
  readonly options: GraphOptions;
  /** Lets others have the event loop, now and then. */
  readonly turn?: (() => Promise<void> | undefined) | undefined;
  /** Hears of all that runs inside. */
  readonly handler?: object | undefined;
}

/** Modes of a request that are modes of the library, by the same name and with the same events. */
const sameModes = new Set(['values', 'updates', 'debug', 'custom', 'tasks', 'checkpoints', 'tools']);

/**
 * Runs a graph and hands on its events by the modes of the API: `messages-tuple` is what the library calls `messages`, `messages` is
 * made of that and the states, and `events` is everything that runs inside, for which alone the slower `streamEvents` is used.
 * Also hands on the root's states when the graph has no checkpointer, under mode `''`, for the outcome.
 *
 * Many small events: what is done for each of them counts, so they are handed to a function, which never waits.
 *
 * @throws what the graph throws, and what `take` throws, which stops the graph.
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
  const oldMessages = new OldMessages();
  const more = { subgraphs, streamMode: [...library], runId };

  const translate = function* (piece: unknown): Generator<Streamed> {
    const [path, mode, data] = (subgraphs ? piece : [[], ...(piece as unknown[])]) as [string[], string, unknown];
    const namespace = path.join('|');
    if (wanted.has(mode) && mode !== 'messages') yield { mode, event: mode, namespace, data };
    if (mode === 'messages') {
      if (wanted.has('messages-tuple')) yield { mode: 'messages-tuple', event: 'messages', namespace, data };
      if (wanted.has('messages')) {
        for (const [event, value] of oldMessages.piece(data)) yield { mode, event, namespace, data: value };
      }
    }
    if (mode === 'values' && namespace === '') {
      if (wanted.has('messages')) {
        for (const [event, value] of oldMessages.values(data)) {
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
    // Other modes have what the root streams; like the reference server, mode `events` leaves it out.
    if (event.event === 'on_chain_stream' && event.run_id === runId) {
      if (Array.isArray(event.data.chunk)) takeEach(translate(event.data.chunk));
    } else take({ mode: 'events', event: 'events', namespace: '', data: event });
    const turning = turn?.();
    if (turning !== undefined) await turning;
  }
}

/**
 * The options of a call in which the handler hears of all that runs. A handler of the call the library sets up anew for each event that
 * is read; one of the graph, which it adds to those of the call, once. So it becomes the graph's, where that has none of its own.
 */
function withHandler(graph: CompiledGraph, options: GraphOptions, handler: object | undefined): GraphOptions {
  if (handler === undefined) return options;
  if (graph.config?.callbacks !== undefined) return { ...options, callbacks: [handler] };
  graph.config = { ...graph.config, callbacks: [handler] };
  return options;
}
