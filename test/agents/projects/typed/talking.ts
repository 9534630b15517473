import { AIMessage } from '@langchain/core/messages';
import { MessagesAnnotation, StateGraph } from '@langchain/langgraph';

/** A graph whose state holds messages; their JSON form differs from their class. */
export const graph = new StateGraph(MessagesAnnotation)
  .addNode('reply', ({ messages }) => ({ messages: [new AIMessage(`heard: ${messages.at(-1)?.text}`)] }))
  .addEdge('__start__', 'reply')
  .compile();
