import { StateGraph } from '@langchain/langgraph';
import { Answered, Asked, Plan, Settings } from './state.ts';

/** Schemas that exist only as types, known to the compiler alone. */
export const builder = new StateGraph({ stateSchema: Plan, input: Asked, output: Answered }, Settings)
  .addNode('plan', ({ topic }) => ({ steps: [{ title: `think of ${topic}`, steps: [] }] }))
  .addEdge('__start__', 'plan');

export const graph = builder.compile();

export const makeGraph = async (_config: object) => builder;
