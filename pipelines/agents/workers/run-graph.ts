import type { CompiledGraph } from '../graphs/compiled-graph.ts';

/** Takes one of several, at once: what it cannot send yet it buffers within a limit. */
export type Take<Value> = (value: Value) => void;

/** What `stream` takes beside the input. */
export interface GraphOptions {
  readonly signal?: AbortSignal;
  readonly [name: string]: unknown;
}

type Source = (input: unknown, config: object) => AsyncIterable<unknown>;

/**
 * Runs a graph by its `stream` and hands each piece that it streams to `take`, in order.
 *
 * `stream` leads what comes out of a graph through three streams of its own, which costs a small piece more than all that the graph
 * and its readers do with it. So pieces are taken where they begin, from the generator that each Runnable of LangChain brings; `stream`
 * still sets up its config and its context and races with its signal.
 *
 * Pieces are taken as they come: left in the library, they would wait in its queue, which has no limit and slows down as it grows.
 * `turn`, if it answers with a promise, gives the event loop to others.
 *
 * Resolves when the graph has ended, and rejects as soon as the signal of the options aborts: what the graph streams after that is not
 * taken. @throws what the graph throws, and what `take` throws, which aborts the graph.
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
  const takeOne = (piece: unknown) => {
    try {
      take(piece);
    } catch (error) {
      stop.abort(error);
      throw error;
    }
  };
  const { _streamIterator: source } = graph as CompiledGraph & { readonly _streamIterator: Source };
  const takeAll = async (...args: Parameters<Source>) => {
    for await (const piece of source.apply(graph, args)) {
      if (stop.signal.aborted) return;
      takeOne(piece);
      const turning = turn();
      if (turning !== undefined) await turning;
    }
  };
  // It ends without a piece once all are taken; it begins in the context of its caller.
  const atItsSource: CompiledGraph = Object.create(graph, {
    _streamIterator: {
      value: (...args: Parameters<Source>) => ({
        next: () => takeAll(...args).then(() => ({ done: true, value: undefined })),
        return: async () => ({ done: true, value: undefined }),
      }),
    },
  });
  try {
    for await (const piece of await atItsSource.stream(input, { ...options, signal: stop.signal })) takeOne(piece);
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}
