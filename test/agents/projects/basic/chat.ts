import { FakeListChatModel } from '@langchain/core/utils/testing';
import { MessagesAnnotation, StateGraph } from '@langchain/langgraph';

/** A model that streams its answer letter by letter and needs no API key. */
export const graph = new StateGraph(MessagesAnnotation)
  .addNode('model', async ({ messages }) => {
    const model = new FakeListChatModel({ responses: ['Good day.'] });
    return { messages: [await model.invoke(messages)] };
  })
  .addEdge('__start__', 'model')
  .compile();
