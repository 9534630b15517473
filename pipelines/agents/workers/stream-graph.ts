import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { protocolMode } from '../protocol/protocol-mode.ts';
import { OldMessages } from './old-messages.ts';
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
  readonly options: object;
}

/** Modes of a request that are modes of the library, by the same name and with the same events. */
const sameModes = new Set(['values', 'updates', 'debug', 'custom', 'tasks', 'checkpoints', 'tools']);

/**
 * Runs a graph and yields its events by the modes of the API: `messages-tuple` is what the library calls `messages`, `messages` is
 * made of that and the states, and `events` is everything that runs inside, for which alone the slower `streamEvents` is used.
 * Also yields the root's states when the graph has no checkpointer, under mode `''`, for the outcome.
 */
export async function* streamGraph(
  graph: CompiledGraph,
  input: unknown,
  { modes, subgraphs, runId, options }: StreamRequest,
): AsyncGenerator<Streamed> {
  const wanted = new Set(modes.length > 0 ? modes : ['values']);
  if (wanted.has(protocolMode)) {
    yield* streamProtocol(graph, input, { runId, options });
    return;
  }
  const library = new Set([...wanted].filter((mode) => sameModes.has(mode)));
  if (wanted.has('messages') || wanted.has('messages-tuple')) library.add('messages');
  const withStates = !graph.checkpointer;
  if (wanted.has('messages') || withStates || library.size === 0) library.add('values');
  const oldMessages = new OldMessages();
  const streamOptions = { ...options, subgraphs, streamMode: [...library], runId };

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

  if (!wanted.has('events')) {
    for await (const piece of await graph.stream(input, streamOptions)) yield* translate(piece);
    return;
  }
  for await (const event of graph.streamEvents(input, { ...streamOptions, version: 'v2' })) {
    if (event.event === 'on_chain_stream' && event.run_id === runId && Array.isArray(event.data.chunk)) {
      yield* translate(event.data.chunk);
    }
    yield { mode: 'events', event: 'events', namespace: '', data: event };
  }
}
