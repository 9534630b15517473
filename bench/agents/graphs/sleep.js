import { setTimeout as pause } from 'node:timers/promises';
import { Annotation, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ ms: Annotation, done: Annotation });

/** One node that sleeps for `ms` milliseconds, like one that waits for a model. */
export const graph = new StateGraph(State)
  .addNode('sleep', async ({ ms }) => {
    await pause(ms);
    return { done: true };
  })
  .addEdge('__start__', 'sleep')
  .compile();
