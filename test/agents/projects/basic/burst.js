import { setTimeout as delay } from 'node:timers/promises';
import { Annotation, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({
  n: Annotation,
  bytes: Annotation,
  pauseMs: Annotation,
  perTurn: Annotation,
  gate: Annotation,
  gateAt: Annotation,
  done: Annotation,
});

/**
 * Writes `n` custom events {i}, each with `bytes` of text if given, and waits `pauseMs` after each; without it, the node
 * yields to the event loop after every `perTurn` events. Before event `gateAt` it waits until `gate` answers.
 */
export const graph = new StateGraph(State)
  .addNode('burst', async ({ n = 100, bytes = 0, pauseMs, perTurn = 1_000, gate, gateAt }, config) => {
    for (let i = 0; i < n; i += 1) {
      if (i === gateAt) await fetch(gate);
      config.writer(bytes > 0 ? { i, text: 'x'.repeat(bytes) } : { i });
      if (pauseMs !== undefined) await delay(pauseMs);
      else if (i % perTurn === perTurn - 1) await new Promise(setImmediate);
    }
    return { done: n };
  })
  .addEdge('__start__', 'burst')
  .compile();
