import { AIMessage } from '@langchain/core/messages';
import { Annotation, END, getWriter, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { describe, expect, test } from 'vitest';
import type { CompiledGraph } from '../../../../pipelines/agents/graphs/compiled-graph.ts';
import { runGraph } from '../../../../pipelines/agents/workers/child/stream-graph.ts';
import { deferred } from '../../../infra/deferred.ts';

const State = Annotation.Root({
  ...MessagesAnnotation.spec,
  count: Annotation<number>({ reducer: (_, next) => next, default: () => 0 }),
});

interface GraphHooks {
  readonly node?: (signal: AbortSignal | undefined) => Promise<void>;
}

/** Returns a graph with two steps, the second one in a subgraph, each with its own events. */
function buildGraph({ node = async () => undefined }: GraphHooks = {}): CompiledGraph {
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

/** Replaces ids, which differ between runs. */
const shown = (chunk: unknown) =>
  JSON.parse(JSON.stringify(chunk).replace(/[\da-f]{8}-[\da-f-]{27}/g, 'id')) as unknown;

async function streamed(graph: CompiledGraph, options: object): Promise<unknown[]> {
  const chunks: unknown[] = [];
  for await (const chunk of await graph.stream({ count: 1 }, options)) chunks.push(shown(chunk));
  return chunks;
}

describe('forwards the chunks of the graph unchanged', () => {
  test.each([
    ['one mode', { streamMode: ['custom'] }],
    ['several modes', { streamMode: ['values', 'updates', 'custom', 'messages'] }],
    ['subgraphs', { streamMode: ['values', 'custom', 'updates'], subgraphs: true }],
    ['no mode', { streamMode: [] }],
  ])('%s', async (_, options) => {
    const received: unknown[] = [];
    await runGraph(buildGraph(), { count: 1 }, options, (chunk) => void received.push(shown(chunk)));
    expect(received).toEqual(await streamed(buildGraph(), options));
  });
});

const customOnly = { streamMode: ['custom'] };

test('forwards chunks while the graph is running', async () => {
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
  await runGraph(busy, {}, customOnly, (chunk) => {
    if ((chunk as unknown[])[1] === next) next += 1;
  });
  expect(next).toBe(many);
});

test('an abort ends the run at once, whatever the graph does, and no further chunk is forwarded', async () => {
  const stop = new AbortController();
  const { promise: waiting, resolve: resume } = deferred();
  const received: unknown[] = [];
  const running = runGraph(buildGraph({ node: () => waiting }), {}, { ...customOnly, signal: stop.signal }, (chunk) => {
    received.push(chunk);
    if (received.length === 3) stop.abort(new Error('stopped'));
    return undefined;
  });
  await expect(running).rejects.toThrow('stopped');
  resume();
  await new Promise<void>((resolve) => setImmediate(resolve));
  expect(received).toHaveLength(3);
});

test('forwards nothing if aborted before the start', async () => {
  const received: unknown[] = [];
  const options = { ...customOnly, signal: AbortSignal.abort(new Error('stopped')) };
  await expect(runGraph(buildGraph(), {}, options, (chunk) => void received.push(chunk))).rejects.toThrow('stopped');
  expect(received).toEqual([]);
});

test('rejects with the error of the graph after its chunks', async () => {
  const received: unknown[] = [];
  const failing = buildGraph({ node: () => Promise.reject(new Error('of the graph')) });
  await expect(runGraph(failing, {}, customOnly, (chunk) => void received.push(chunk))).rejects.toThrow('of the graph');
  expect(received).toHaveLength(3);
});

test('an error of the consumer aborts the graph', async () => {
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
  const running = runGraph(buildGraph({ node: untilAborted }), {}, customOnly, () => {
    throw new Error('limit reached');
  });
  await expect(running).rejects.toThrow('limit reached');
  await isAborted;
});
