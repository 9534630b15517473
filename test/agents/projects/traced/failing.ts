import { Annotation, END, START, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ n: Annotation<number>() });

export const graph = new StateGraph(State)
  .addNode('good', () => ({ n: 1 }))
  .addNode('bad', () => {
    throw new RangeError('out of bounds');
  })
  .addEdge(START, 'good')
  .addEdge('good', 'bad')
  .addEdge('bad', END)
  .compile();
