import { convertToProtocolEvent, createLifecycleTransformer, STREAM_EVENTS_V3_MODES } from '@langchain/langgraph';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { protocolMode, questionEvent } from '../protocol/protocol-mode.ts';
import { runGraph, type Take } from './run-graph.ts';
import type { Streamed, StreamRequest } from './stream-graph.ts';

type ProtocolEvent = ReturnType<typeof convertToProtocolEvent>[number];

/**
 * Modes that only the protocol uses. The other modes are streamed under their own names; readers convert them to
 * protocol events.
 */
const protocolOnlyModes = new Set(['messages', 'checkpoints']);

interface StreamedInterrupt {
  readonly id?: string;
  readonly value?: unknown;
}

/**
 * Runs a graph and passes the events of the event-stream protocol to `take`. Values, updates, custom, tasks and tools
 * keep their stream modes. Messages (as content blocks), checkpoints, lifecycle events of subgraphs and interrupts use
 * the mode of the protocol, each with data `{node?, data}`. If the graph has no checkpointer, the states of the root
 * graph are passed under mode `''`. The executor emits the lifecycle events of the run.
 */
export async function streamProtocol(
  graph: CompiledGraph,
  input: unknown,
  { runId, options, turn }: Pick<StreamRequest, 'runId' | 'options' | 'turn'>,
  take: Take<Streamed>,
): Promise<void> {
  const withStates = !graph.checkpointer;
  const lifecycleEvents: ProtocolEvent[] = [];
  const lifecycle = createLifecycleTransformer({ emitRootOnRegister: false });
  lifecycle.init();
  lifecycle.onRegister?.({ push: (_namespace, event) => void lifecycleEvents.push(event) });
  const takeLifecycleEvents = function* (): Generator<Streamed> {
    for (const { method, params } of lifecycleEvents.splice(0)) yield protocolEvent(method, params);
  };
  const reported = new Set<string>();

  const translate = function* (chunk: unknown): Generator<Streamed> {
    const [namespace, mode, payload] = chunk as [string[], string, unknown];
    for (const event of convertToProtocolEvent({ namespace, mode: mode as 'values', payload, seq: 0 })) {
      lifecycle.process(event);
      yield* takeLifecycleEvents();
      if (!protocolOnlyModes.has(mode)) yield { mode, event: mode, namespace: namespace.join('|'), data: payload };
      // Skip message chunks of LangGraph versions that stream them without conversion to protocol events.
      else if (mode !== 'messages' || 'event' in (event.params.data as object))
        yield protocolEvent(event.method, event.params);
    }
    for (const question of newInterrupts(mode, payload, reported)) {
      const data = { event: 'requested', id: question.interrupt_id };
      lifecycle.process({
        ...{ type: 'event', seq: 0, method: 'input' },
        params: { namespace, timestamp: 0, data },
      } as ProtocolEvent);
      yield protocolEvent(questionEvent, { namespace, data: question });
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
    await runGraph(graph, input, streamOptions, (chunk) => takeEach(translate(chunk)), turn);
  } catch (error) {
    lifecycle.fail?.(error);
    takeEach(takeLifecycleEvents());
    throw error;
  }
  await lifecycle.finalize?.();
  takeEach(takeLifecycleEvents());
}

function protocolEvent(
  event: string,
  params: { readonly namespace: readonly string[]; readonly node?: string | undefined; readonly data: unknown },
): Streamed {
  const { namespace, node, data } = params;
  return { mode: protocolMode, event, namespace: namespace.join('|'), data: { ...(node && { node }), data } };
}

/**
 * Returns interrupts that were not reported before, because a subgraph and all its parents stream the same interrupt.
 */
function* newInterrupts(mode: string, payload: unknown, reported: Set<string>) {
  if (mode !== 'values' && mode !== 'updates') return;
  if (typeof payload !== 'object' || payload === null || !('__interrupt__' in payload)) return;
  const { __interrupt__: interrupts } = payload as { readonly __interrupt__: unknown };
  if (!Array.isArray(interrupts)) return;
  for (const { id, value } of interrupts as readonly StreamedInterrupt[]) {
    if (id === undefined || reported.has(id)) continue;
    reported.add(id);
    // The protocol defines `payload`; the Python client reads `value`.
    yield { interrupt_id: id, payload: value, value };
  }
}
