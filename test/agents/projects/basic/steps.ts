import { setTimeout as delay } from 'node:timers/promises';
import { Annotation, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({
  steps: Annotation<number>,
  pauseMs: Annotation<number>,
  text: Annotation<string>,
  count: Annotation<number>({ reducer: (_before, after) => after, default: () => 0 }),
  log: Annotation<string[]>({ reducer: (before, more) => [...before, ...more], default: () => [] }),
});

/** A graph that runs `steps` super-steps (default 3) of `pauseMs` each (default 0). A cancel ends the pause. */
export const graph = new StateGraph(State)
  .addNode('step', async ({ count, pauseMs = 0, text = 'step' }, config) => {
    await delay(pauseMs, undefined, config.signal && { signal: config.signal });
    config.writer?.({ step: count + 1 });
    return { count: count + 1, log: [`${text} ${count + 1}`] };
  })
  .addEdge('__start__', 'step')
  .addConditionalEdges('step', ({ count, steps = 3 }) => (count % steps === 0 ? '__end__' : 'step'))
  .compile();
