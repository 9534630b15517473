/** The tag that LangGraph gives to the run of a node, and to no run inside the node. */
const nodeTag = 'graph:step:';
/** The tag of the node that copies the input of a graph to its first nodes. */
const hiddenTag = 'langsmith:hidden';

/**
 * LangChain callback handler that counts the nodes that a graph and its subgraphs execute. A node counts when it has
 * returned or has interrupted the graph; a node that threw does not count, nor do its failed retries.
 */
export class NodeCounter {
  readonly name = 'runlake_node_counter';
  readonly lc_serializable = false;
  /** Makes LangChain call the handler synchronously, so that the count is complete when the graph has ended. */
  readonly awaitHandlers = true;
  readonly raiseError = false;
  readonly ignoreLLM = true;
  readonly ignoreChain = false;
  readonly ignoreAgent = true;
  readonly ignoreRetriever = true;
  readonly ignoreCustomEvent = true;
  count = 0;

  copy(): this {
    return this;
  }

  handleChainEnd(_outputs: unknown, _id: string, _parentId?: string, tags?: readonly string[]): void {
    if (tags?.some((tag) => tag.startsWith(nodeTag)) && !tags.includes(hiddenTag)) this.count += 1;
  }

  handleChainError(error: unknown, id: string, parentId?: string, tags?: readonly string[]): void {
    if (error instanceof Error && error.name === 'GraphInterrupt') this.handleChainEnd(undefined, id, parentId, tags);
  }
}
