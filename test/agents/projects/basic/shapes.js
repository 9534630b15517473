import { Annotation, MemorySaver, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ text: Annotation, seen: Annotation });

const saying = (what) => new StateGraph(State).addNode('say', () => ({ seen: what() })).addEdge('__start__', 'say');

export const builder = saying(() => 'builder');
export const promised = Promise.resolve(saying(() => 'promised').compile());
export default saying(() => 'default').compile();
/** Compiled with its own checkpointer. */
export const remembering = saying(() => 'remembering').compile({ checkpointer: new MemorySaver() });
/** Returns the environment variables that graph code sees. */
export const environment = saying(() =>
  Object.keys(process.env)
    .sort()
    .map((name) => `${name}=${process.env[name]}`),
).compile();
