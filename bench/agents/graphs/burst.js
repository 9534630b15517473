import { Annotation, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ events: Annotation, done: Annotation });

/** One node that writes `events` custom events. All measured servers use this file. */
export const graph = new StateGraph(State)
  .addNode('burst', ({ events }, config) => {
    for (let number = 0; number < events; number += 1) config.writer({ number });
    return { done: events };
  })
  .addEdge('__start__', 'burst')
  .compile();
