import { createRequire } from 'node:module';
import { Annotation, StateGraph } from '@langchain/langgraph';

const require = createRequire(import.meta.url);
const AsyncFunction = (async () => {}).constructor;

/** Runs `code`, the body of an async function, with the permissions of graph code. `found` is its result or error. */
export const graph = new StateGraph(
  Annotation.Root({ code: Annotation, given: Annotation, found: Annotation, failed: Annotation }),
)
  .addNode('spy', async ({ code, given }) => {
    try {
      return { found: (await new AsyncFunction('require', 'given', code)(require, given)) ?? null };
    } catch (error) {
      return { failed: error.code ?? String(error) };
    }
  })
  .addEdge('__start__', 'spy')
  .compile();
