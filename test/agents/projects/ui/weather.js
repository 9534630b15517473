import { Annotation, StateGraph } from '@langchain/langgraph';
import { typedUi, uiMessageReducer } from '@langchain/langgraph-sdk/react-ui/server';

const State = Annotation.Root({
  city: Annotation(),
  ui: Annotation({ reducer: uiMessageReducer, default: () => [] }),
});

/** Shows the component `card` of the UI with the city of the input. */
export const graph = new StateGraph(State)
  .addNode('show', (state, config) => {
    typedUi(config).push({ name: 'card', props: { city: state.city } });
    return {};
  })
  .addEdge('__start__', 'show')
  .compile();
