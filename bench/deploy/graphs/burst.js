import { setTimeout as pause } from 'node:timers/promises';
import { Annotation, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ events: Annotation, pauseMs: Annotation, done: Annotation });

/** One node that writes `events` custom events, with a pause of `pauseMs` after each if it is set. */
export const graph = new StateGraph(State)
  .addNode('burst', async ({ events, pauseMs }, config) => {
    for (let number = 0; number < events; number += 1) {
      config.writer({ number });
      if (pauseMs) await pause(pauseMs);
    }
    return { done: events };
  })
  .addEdge('__start__', 'burst')
  .compile();
