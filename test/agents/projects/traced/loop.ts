import { setTimeout as pause } from 'node:timers/promises';
import { Annotation, END, START, StateGraph } from '@langchain/langgraph';

/** Repeats its node `rounds` times and records each round. */

const State = Annotation.Root({
  rounds: Annotation<number>(),
  done: Annotation<number>(),
  pauseMs: Annotation<number>(),
});

export const graph = new StateGraph(State)
  .addNode('step', async ({ done = 0, pauseMs = 0 }, { writer }) => {
    writer?.({ done });
    await pause(pauseMs);
    return { done: done + 1 };
  })
  .addEdge(START, 'step')
  .addConditionalEdges('step', ({ done, rounds }) => (done < rounds ? 'step' : END), ['step', END])
  .compile();
