import { Annotation, type LangGraphRunnableConfig, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ text: Annotation<string>, user: Annotation<unknown> });

/** Returns the authenticated user of the run. */
export const graph = new StateGraph(State)
  .addNode('look', (_state, { configurable = {} }: LangGraphRunnableConfig) => ({
    user: {
      user: configurable.langgraph_auth_user,
      id: configurable.langgraph_auth_user_id,
      permissions: configurable.langgraph_auth_permissions,
      user_id: configurable.user_id,
    },
  }))
  .addEdge('__start__', 'look')
  .compile();
