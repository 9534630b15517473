import { Annotation, StateGraph } from '@langchain/langgraph';

const Inner = Annotation.Root({ words: Annotation<string[]> });
const Outer = Annotation.Root({ words: Annotation<string[]>, count: Annotation<number> });

const innermost = new StateGraph(Annotation.Root({ characters: Annotation<number> }))
  .addNode('spell', () => ({ characters: 3 }))
  .addEdge('__start__', 'spell')
  .compile();

const inner = new StateGraph(Inner)
  .addNode('write', () => ({ words: ['one', 'two'] }))
  .addNode('characters', innermost)
  .addEdge('__start__', 'write')
  .addEdge('write', 'characters')
  .compile();

const builder = new StateGraph(Outer)
  .addNode('child', inner)
  .addNode('tally', ({ words }) => ({ count: words.length }))
  .addEdge('__start__', 'child')
  .addEdge('child', 'tally');

export const graph = builder.compile();
