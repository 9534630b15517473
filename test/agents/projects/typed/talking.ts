import { AIMessage } from '@langchain/core/messages';
import { MessagesAnnotation, StateGraph } from '@langchain/langgraph';

/** Its state is messages, which are another thing as JSON than their class is. */
export const graph = new StateGraph(MessagesAnnotation)
  .addNode('reply', ({ messages }) => ({ messages: [new AIMessage(`heard: ${messages.at(-1)?.text}`)] }))
  .addEdge('__start__', 'reply')
  .compile();
