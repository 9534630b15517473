import type { CompiledGraph } from '../graphs/compiled-graph.ts';

/** Consumes one value synchronously. The implementation buffers values that it cannot send yet, within a limit. */
export type Take<Value> = (value: Value) => void;

/** Options of `stream` of a graph. */
export interface GraphOptions {
  readonly signal?: AbortSignal;
  readonly [name: string]: unknown;
}

type Source = (input: unknown, config: object) => AsyncGenerator<unknown>;

interface Streaming extends CompiledGraph {
  _streamIterator?: Source;
}

/**
 * Runs a graph with its `stream` method and passes each streamed chunk to `take`, in order. Calls for the same instance
 * of a graph must not overlap.
 *
 * `stream` pipes the output of a graph through three internal streams. An error of the graph drops the chunks that are
 * buffered in them, and for a small chunk these streams cost more than all other work. This function therefore consumes
 * the chunks at their source, the `_streamIterator` of the LangChain Runnable. `stream` still sets up config and context
 * and handles the abort signal.
 *
 * Risk: `_streamIterator` is private, and a graph brings its own version of the library. If `stream` of a version does
 * not call `_streamIterator`, chunks pass through `stream` with the disadvantages above, and `run-graph.test.ts` and
 * `library-versions.test.ts` fail.
 *
 * Chunks are consumed as soon as they are produced, because LangGraph's own queue is unbounded and slows down as it
 * grows. If `turn` returns a promise, the function awaits it to yield the event loop.
 *
 * Resolves when the graph has ended. Rejects as soon as the signal aborts; later chunks are dropped.
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
  const streaming: Streaming = graph;
  const source = streaming._streamIterator;
  const takeAll = async (source: Source, args: Parameters<Source>) => {
    for await (const chunk of source.apply(graph, args)) {
      if (stop.signal.aborted) return;
      takeOne(chunk);
      const turning = turn();
      if (turning !== undefined) await turning;
    }
  };
  if (source !== undefined) {
    // This iterator consumes all chunks in its first `next`, in the async context of the caller, and ends without a value.
    const consumed = (...args: Parameters<Source>) => ({
      next: () => takeAll(source, args).then(() => ({ done: true, value: undefined })),
      return: async () => ({ done: true, value: undefined }),
    });
    streaming._streamIterator = consumed as unknown as Source;
  }
  try {
    for await (const chunk of await graph.stream(input, { ...options, signal: stop.signal })) takeOne(chunk);
  } finally {
    delete streaming._streamIterator;
    signal?.removeEventListener('abort', abort);
  }
}
