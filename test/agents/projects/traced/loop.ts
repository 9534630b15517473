import { setTimeout as pause } from 'node:timers/promises';
import { Annotation, END, START, StateGraph } from '@langchain/langgraph';

/** Repeats its node `rounds` times and records each round. If there is a `gate`, each round waits until it answers. */

const State = Annotation.Root({
  rounds: Annotation<number>(),
  done: Annotation<number>(),
  pauseMs: Annotation<number>(),
  gate: Annotation<string>(),
});

export const graph = new StateGraph(State)
  .addNode('step', async ({ done = 0, pauseMs = 0, gate }, { writer }) => {
    writer?.({ done });
    await pause(pauseMs);
    if (gate) await fetch(gate);
    return { done: done + 1 };
  })
  .addEdge(START, 'step')
  .addConditionalEdges('step', ({ done, rounds }) => (done < rounds ? 'step' : END), ['step', END])
  .compile();
