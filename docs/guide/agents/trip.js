import { setTimeout as pause } from 'node:timers/promises';
import { Annotation, interrupt, StateGraph } from '@langchain/langgraph';

const Trip = Annotation.Root({ city: Annotation, plan: Annotation, answer: Annotation, booking: Annotation });

/** Plans a trip, asks, and books. It needs no key of any model: in `propose` a real one would call one. */
export const graph = new StateGraph(Trip)
  .addNode('propose', async ({ city }, config) => {
    const words = `A train to ${city} on Friday, two nights by the river, and back on Sunday.`.split(' ');
    for (const word of words) {
      config.writer({ word });
      await pause(30);
    }
    return { plan: words.join(' ') };
  })
  .addNode('ask', ({ plan }) => ({ answer: interrupt({ question: 'Shall I book it?', plan }) }))
  .addNode('book', ({ city, answer }) => ({ booking: answer === 'yes' ? `booked: ${city}` : 'nothing booked' }))
  .addEdge('__start__', 'propose')
  .addEdge('propose', 'ask')
  .addEdge('ask', 'book')
  .compile();
