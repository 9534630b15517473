import type { CompiledGraph } from '../graphs/compiled-graph.ts';

/** Takes one of several. Where it answers with a promise, the next comes after that. */
export type Take<Value> = (value: Value) => Promise<void> | undefined;

/** What `stream` takes beside the input. */
export interface GraphOptions {
  readonly signal?: AbortSignal;
  readonly [name: string]: unknown;
}

type Source = (input: unknown, config: object) => AsyncIterable<unknown>;

/**
 * Runs a graph by its `stream` and hands each piece that it streams to `take`, in their order.
 *
 * `stream` leads what comes out of a graph through three streams of its own, which costs a small piece more than all that the graph
 * and those behind it do with it. So pieces are taken where they begin, from the generator that each Runnable of LangChain brings;
 * `stream` still sets up its config and its context and races with its signal.
 *
 * What `take` has no room for waits here and not in the library, whose queue takes the longer for a piece the more wait in it. `turn`,
 * where it answers with a promise, lets others have the event loop.
 *
 * Resolves when the graph has ended and all is taken, and rejects as soon as the signal of the options aborts: what the graph still
 * streams then nobody takes. @throws what the graph throws, and what `take` throws, which aborts the graph.
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
  const orderly = new InOrder(take, stop);
  const { _streamIterator: source } = graph as CompiledGraph & { readonly _streamIterator: Source };
  const takeAll = async (...args: Parameters<Source>) => {
    try {
      for await (const piece of source.apply(graph, args)) {
        if (stop.signal.aborted) return;
        orderly.put(piece);
        const turning = turn();
        if (turning !== undefined) await turning;
      }
    } finally {
      // What it streamed before it failed comes before its failure.
      await orderly.taken();
    }
  };
  // It ends without a piece once all are taken; it begins in the context of whoever asks.
  const atItsSource: CompiledGraph = Object.create(graph, {
    _streamIterator: {
      value: (...args: Parameters<Source>) => ({
        next: () => takeAll(...args).then(() => ({ done: true, value: undefined })),
        return: async () => ({ done: true, value: undefined }),
      }),
    },
  });
  try {
    for await (const piece of await atItsSource.stream(input, { ...options, signal: stop.signal })) orderly.put(piece);
    await orderly.taken();
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

/** Pieces on their way to who takes them, one after the other. One that cannot be taken aborts `stop`. */
class InOrder {
  readonly #take: Take<unknown>;
  readonly #stop: AbortController;
  #waiting: unknown[] = [];
  #taking: Promise<void> | undefined;

  constructor(take: Take<unknown>, stop: AbortController) {
    this.#take = take;
    this.#stop = stop;
  }

  put(piece: unknown): void {
    if (this.#taking !== undefined) {
      this.#waiting.push(piece);
      return;
    }
    try {
      const taking = this.#take(piece);
      if (taking !== undefined) this.#goOnAfter(taking);
    } catch (error) {
      this.#stop.abort(error);
      throw error;
    }
  }

  /** Resolves when all that was put is taken. @throws what it could not be taken for. */
  async taken(): Promise<void> {
    await this.#taking;
  }

  #goOnAfter(taking: Promise<void>): void {
    this.#taking = this.#takeWaiting(taking);
    this.#taking.catch((error: unknown) => this.#stop.abort(error));
  }

  async #takeWaiting(first: Promise<void>): Promise<void> {
    await first;
    while (this.#waiting.length > 0 && !this.#stop.signal.aborted) {
      const pieces = this.#waiting;
      this.#waiting = [];
      for (const piece of pieces) {
        if (this.#stop.signal.aborted) return;
        const taking = this.#take(piece);
        if (taking !== undefined) await taking;
      }
    }
    this.#taking = undefined;
  }
}

/** Hands all to `take`, one after the other; without a promise where none is needed. */
export function takeEach<Value>(values: Iterator<Value>, take: Take<Value>): Promise<void> | undefined {
  for (let next = values.next(); !next.done; next = values.next()) {
    const taking = take(next.value);
    if (taking !== undefined) return taking.then(() => takeEach(values, take));
  }
  return undefined;
}
