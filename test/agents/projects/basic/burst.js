import { setTimeout as delay } from 'node:timers/promises';
import { Annotation, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ n: Annotation, bytes: Annotation, pauseMs: Annotation, done: Annotation });

/** Writes `n` custom events {i}, each with `bytes` of text where that is given, and waits `pauseMs` after each. */
export const graph = new StateGraph(State)
  .addNode('burst', async ({ n = 100, bytes = 0, pauseMs }, config) => {
    for (let i = 0; i < n; i += 1) {
      config.writer(bytes > 0 ? { i, text: 'x'.repeat(bytes) } : { i });
      if (pauseMs !== undefined) await delay(pauseMs);
      else if (i % 1_000 === 999) await new Promise(setImmediate);
    }
    return { done: n };
  })
  .addEdge('__start__', 'burst')
  .compile();
