import { AIMessage } from '@langchain/core/messages';
import { Annotation, END, getWriter, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { describe, expect, test } from 'vitest';
import type { CompiledGraph } from '../../../../pipelines/agents/graphs/compiled-graph.ts';
import { runGraph } from '../../../../pipelines/agents/workers/run-graph.ts';
import { deferred } from '../../../infra/deferred.ts';

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  count: Annotation<number>({ reducer: (_, next) => next, default: () => 0 }),
});

interface Inside {
  readonly node?: (signal: AbortSignal | undefined) => Promise<void>;
}

/** Two steps, the second in a graph within, each with events of its own. */
function graphOf({ node = async () => undefined }: Inside = {}): CompiledGraph {
  const inner = new StateGraph(State)
    .addNode('deep', ({ count }) => {
      getWriter()?.({ deep: count });
      return { count: count + 1 };
    })
    .addEdge(START, 'deep')
    .addEdge('deep', END)
    .compile();
  return new StateGraph(State)
    .addNode('first', async ({ count }, config) => {
      for (let number = 0; number < 3; number += 1) config.writer?.({ number });
      await node(config.signal);
      return { count: count + 1, messages: [new AIMessage({ id: 'm', content: 'said' })] };
    })
    .addNode('second', inner)
    .addEdge(START, 'first')
    .addEdge('first', 'second')
    .addEdge('second', END)
    .compile() as unknown as CompiledGraph;
}

/** Without the ids that each run makes anew. */
const shown = (piece: unknown) =>
  JSON.parse(JSON.stringify(piece).replace(/[\da-f]{8}-[\da-f-]{27}/g, 'id')) as unknown;

async function streamed(graph: CompiledGraph, options: object): Promise<unknown[]> {
  const pieces: unknown[] = [];
  for await (const piece of await graph.stream({ count: 1 }, options)) pieces.push(shown(piece));
  return pieces;
}

describe('what a graph streams is handed on as its stream gives it', () => {
  test.each([
    ['one mode', { streamMode: ['custom'] }],
    ['several', { streamMode: ['values', 'updates', 'custom', 'messages'] }],
    ['of graphs within', { streamMode: ['values', 'custom', 'updates'], subgraphs: true }],
    ['with none', { streamMode: [] }],
  ])('%s', async (_, options) => {
    const taken: unknown[] = [];
    await runGraph(graphOf(), { count: 1 }, options, (piece) => void taken.push(shown(piece)));
    expect(taken).toEqual(await streamed(graphOf(), options));
  });
});

const customOnly = { streamMode: ['custom'] };

test('what a graph streams for long is taken as it comes', async () => {
  const many = 50_000;
  const State = Annotation.Root({ done: Annotation<number> });
  const busy = new StateGraph(State)
    .addNode('busy', async (_, config) => {
      for (let number = 0; number < many; number += 1) {
        config.writer?.(number);
        if (number % 1_000 === 999) await new Promise<void>((resolve) => setImmediate(resolve));
      }
      return { done: many };
    })
    .addEdge(START, 'busy')
    .compile() as unknown as CompiledGraph;
  let next = 0;
  await runGraph(busy, {}, customOnly, (piece) => {
    if ((piece as unknown[])[1] === next) next += 1;
  });
  expect(next).toBe(many);
});

test('an abort ends it at once, whatever the graph does, and nothing is taken any more', async () => {
  const stop = new AbortController();
  const { promise: waiting, resolve: goOn } = deferred();
  const taken: unknown[] = [];
  const running = runGraph(graphOf({ node: () => waiting }), {}, { ...customOnly, signal: stop.signal }, (piece) => {
    taken.push(piece);
    if (taken.length === 3) stop.abort(new Error('stopped'));
    return undefined;
  });
  await expect(running).rejects.toThrow('stopped');
  goOn();
  await new Promise<void>((resolve) => setImmediate(resolve));
  expect(taken).toHaveLength(3);
});

test('one that is aborted before it begins takes nothing', async () => {
  const taken: unknown[] = [];
  const options = { ...customOnly, signal: AbortSignal.abort(new Error('stopped')) };
  await expect(runGraph(graphOf(), {}, options, (piece) => void taken.push(piece))).rejects.toThrow('stopped');
  expect(taken).toEqual([]);
});

test('what the graph throws comes after what it streamed', async () => {
  const taken: unknown[] = [];
  const failing = graphOf({ node: () => Promise.reject(new Error('of the graph')) });
  await expect(runGraph(failing, {}, customOnly, (piece) => void taken.push(piece))).rejects.toThrow('of the graph');
  expect(taken).toHaveLength(3);
});

test('who cannot take a piece ends the graph', async () => {
  const { promise: isAborted, resolve: aborted } = deferred();
  const untilAborted = (signal: AbortSignal | undefined) =>
    new Promise<void>((_, reject) => {
      const end = () => {
        aborted();
        reject(new Error('aborted'));
      };
      if (signal?.aborted) end();
      else signal?.addEventListener('abort', end);
    });
  const running = runGraph(graphOf({ node: untilAborted }), {}, customOnly, () => {
    throw new Error('no room');
  });
  await expect(running).rejects.toThrow('no room');
  await isAborted;
});
