import { convertToProtocolEvent, createLifecycleTransformer, STREAM_EVENTS_V3_MODES } from '@langchain/langgraph';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { protocolMode, questionEvent } from '../protocol/protocol-mode.ts';
import { runGraph, type Take } from './run-graph.ts';
import type { Streamed, StreamRequest } from './stream-graph.ts';

type ProtocolEvent = ReturnType<typeof convertToProtocolEvent>[number];

/** Of the protocol alone; the others are streamed as the older modes of the same name, and become its events where they are read. */
const ofProtocol = new Set(['messages', 'checkpoints']);

interface Interruption {
  readonly id?: string;
  readonly value?: unknown;
}

/**
 * Runs a graph and hands on what the event-stream protocol tells of it: values, updates, custom, tasks and tools as the modes of that
 * name; messages as content blocks, checkpoints, beginnings and ends of subgraphs and questions under the mode of the protocol, each
 * `{node?, data}`. The states of the root go by mode `''` where the graph keeps none. Beginning and end of the run itself are told by
 * whoever executes it.
 */
export async function streamProtocol(
  graph: CompiledGraph,
  input: unknown,
  { runId, options, turn }: Pick<StreamRequest, 'runId' | 'options' | 'turn'>,
  take: Take<Streamed>,
): Promise<void> {
  const withStates = !graph.checkpointer;
  const made: ProtocolEvent[] = [];
  const lifecycle = createLifecycleTransformer({ emitRootOnRegister: false });
  lifecycle.init();
  lifecycle.onRegister?.({ push: (_namespace, event) => void made.push(event) });
  const told = function* (): Generator<Streamed> {
    for (const { method, params } of made.splice(0)) yield ofMethod(method, params);
  };
  const asked = new Set<string>();

  const translate = function* (piece: unknown): Generator<Streamed> {
    const [namespace, mode, payload] = piece as [string[], string, unknown];
    for (const event of convertToProtocolEvent({ namespace, mode: mode as 'values', payload, seq: 0 })) {
      lifecycle.process(event);
      yield* told();
      if (!ofProtocol.has(mode)) yield { mode, event: mode, namespace: namespace.join('|'), data: payload };
      // Another version of the library may stream the pieces of messages themselves.
      else if (mode !== 'messages' || 'event' in (event.params.data as object))
        yield ofMethod(event.method, event.params);
    }
    for (const question of questionsOf(mode, payload, asked)) {
      const data = { event: 'requested', id: question.interrupt_id };
      lifecycle.process({
        ...{ type: 'event', seq: 0, method: 'input' },
        params: { namespace, timestamp: 0, data },
      } as ProtocolEvent);
      yield ofMethod(questionEvent, { namespace, data: question });
    }
    if (withStates && mode === 'values' && namespace.length === 0) {
      yield { mode: '', event: '', namespace: '', data: payload };
    }
  };

  const takeEach = (all: Iterable<Streamed>) => {
    for (const each of all) take(each);
  };

  const streamOptions = {
    ...{ ...options, runId, subgraphs: true, version: 'v3' },
    streamMode: [...STREAM_EVENTS_V3_MODES],
  };
  try {
    await runGraph(graph, input, streamOptions, (piece) => takeEach(translate(piece)), turn);
  } catch (error) {
    lifecycle.fail?.(error);
    takeEach(told());
    throw error;
  }
  await lifecycle.finalize?.();
  takeEach(told());
}

function ofMethod(
  event: string,
  params: { readonly namespace: readonly string[]; readonly node?: string | undefined; readonly data: unknown },
): Streamed {
  const { namespace, node, data } = params;
  return { mode: protocolMode, event, namespace: namespace.join('|'), data: { ...(node && { node }), data } };
}

/** What the graph asks that it has not asked before: a subgraph and its parents all stream it. */
function* questionsOf(mode: string, payload: unknown, asked: Set<string>) {
  if (mode !== 'values' && mode !== 'updates') return;
  if (typeof payload !== 'object' || payload === null || !('__interrupt__' in payload)) return;
  const { __interrupt__: interruptions } = payload as { readonly __interrupt__: unknown };
  if (!Array.isArray(interruptions)) return;
  for (const { id, value } of interruptions as readonly Interruption[]) {
    if (id === undefined || asked.has(id)) continue;
    asked.add(id);
    // `payload` by the protocol; the Python client reads `value`.
    yield { interrupt_id: id, payload: value, value };
  }
}
