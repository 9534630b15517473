import type { RunnableConfig } from '@langchain/core/runnables';
import { Annotation, MemorySaver, StateGraph } from '@langchain/langgraph';

const endless = () => new Promise<never>(() => undefined);

/** Brings state that cannot be read after the graph has ended. */
class UnreadableSaver extends MemorySaver {
  override getTuple(config: RunnableConfig) {
    return Object.keys(this.storage).length > 0 ? endless() : super.getTuple(config);
  }
}

/**
 * Builds the graph for each request: `configurable.node` names its node (`process`: after the process), and the answer begins with
 * `configurable.style`. `configurable.hangs` names what never ends: this function (`factory`) or reading the final state
 * (`state`).
 */
export async function makeGraph(config: RunnableConfig) {
  const node =
    config.configurable?.node === 'process' ? `process-${process.pid}` : String(config.configurable?.node ?? 'plain');
  if (node === 'refused') throw new Error('no such node');
  if (node === 'textless') throw Object.create(null);
  if (config.configurable?.hangs === 'factory') return endless();
  const builder = new StateGraph(Annotation.Root({ answer: Annotation<string>, text: Annotation<string> }))
    .addNode(node, ({ text }) => ({ answer: `${config.configurable?.style ?? 'plain'}: ${text}` }))
    .addEdge('__start__', node);
  return config.configurable?.hangs === 'state' ? builder.compile({ checkpointer: new UnreadableSaver() }) : builder;
}
