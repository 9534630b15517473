import { Annotation, StateGraph } from '@langchain/langgraph';
import { builder as planning } from './annotated.ts';

/** A graph whose subgraphs are built inline in `addNode`, from names, builders and functions. */
const characters = new StateGraph(Annotation.Root({ characters: Annotation<number> }))
  .addNode('spell', () => ({ characters: 3 }))
  .addEdge('__start__', 'spell');

const words = new StateGraph(Annotation.Root({ words: Annotation<string[]> }))
  .addNode('characters', characters.compile())
  .addEdge('__start__', 'characters');

function makePages() {
  const pages = new StateGraph(Annotation.Root({ pages: Annotation<number> }))
    .addNode('words', words.compile())
    .addEdge('__start__', 'words');
  return pages.compile();
}

const plan = new StateGraph(Annotation.Root({ topic: Annotation<string> }))
  .addNode('inner', planning.compile())
  .addEdge('__start__', 'inner')
  .compile();

export const graph = new StateGraph(Annotation.Root({ topic: Annotation<string>, count: Annotation<number> }))
  .addNode({ plan })
  .addNode('pages', makePages())
  .addEdge('__start__', 'plan')
  .addEdge('plan', 'pages')
  .compile();
