import { appendFileSync, existsSync } from 'node:fs';
import { Annotation, StateGraph } from '@langchain/langgraph';

const file = process.env.FAILS_WHILE ?? '';
if (existsSync(file)) {
  appendFileSync(file, '.');
  throw new Error('fails while it is imported, on purpose');
}

export const graph = new StateGraph(Annotation.Root({ ends: Annotation }))
  .addNode('end', ({ ends }) => {
    if (ends) process.exit(3);
    return {};
  })
  .addEdge('__start__', 'end')
  .compile();
