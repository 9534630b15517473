import { AIMessage } from '@langchain/core/messages';
import { MessagesAnnotation, StateGraph } from '@langchain/langgraph';

export const graph = new StateGraph(MessagesAnnotation)
  .addNode('reply', ({ messages }) => ({ messages: [new AIMessage(`echo: ${messages.at(-1)?.text ?? ''}`)] }))
  .addEdge('__start__', 'reply')
  .compile();
