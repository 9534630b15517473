import type { RunnableConfig } from '@langchain/core/runnables';
import { Annotation, StateGraph } from '@langchain/langgraph';

/**
 * Builds the graph for each request: `configurable.node` names its node, and the answer begins with
 * `configurable.style`.
 */
export async function makeGraph(config: RunnableConfig) {
  const node = String(config.configurable?.node ?? 'plain');
  if (node === 'refused') throw new Error('no such node');
  return new StateGraph(Annotation.Root({ answer: Annotation<string>, text: Annotation<string> }))
    .addNode(node, ({ text }) => ({ answer: `${config.configurable?.style ?? 'plain'}: ${text}` }))
    .addEdge('__start__', node);
}
