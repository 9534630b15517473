import { Annotation, interrupt, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({
  ask: Annotation<boolean>,
  gate: Annotation<string>,
  path: Annotation<string[]>({ reducer: (before, more) => [...before, ...more], default: () => [] }),
});

const child = new StateGraph(State)
  .addNode('inner', ({ ask }, config) => {
    config.writer?.({ from: 'inner' });
    return { path: ask ? ['inner', String(interrupt('inside?'))] : ['inner'] };
  })
  .addNode('last', () => ({ path: [] }))
  .addEdge('__start__', 'inner')
  .addEdge('inner', 'last')
  .compile();

/** A graph whose node `child` is a subgraph; with `ask`, the subgraph interrupts. */
export const graph = new StateGraph(State)
  .addNode('outer', () => ({ path: ['outer'] }))
  .addNode('child', child)
  .addEdge('__start__', 'outer')
  .addEdge('outer', 'child')
  .compile();

const stopping = new StateGraph(State)
  .addNode('first', () => ({ path: ['first'] }))
  .addNode('second', () => ({ path: ['second'] }))
  .addNode('third', () => ({ path: ['third'] }))
  .addEdge('__start__', 'first')
  .addEdge('first', 'second')
  .addEdge('second', 'third')
  .compile({ interruptBefore: ['second'], interruptAfter: ['second', 'third'] });

const between = new StateGraph(State).addNode('stopping', stopping).addEdge('__start__', 'stopping').compile();

/**
 * A graph whose nested subgraph stops before `second`, after `second`, and after `third`. `beside` runs in parallel; if
 * `gate` is set, it lasts until `gate` responds.
 */
export const resting = new StateGraph(State)
  .addNode('between', between)
  .addNode('beside', async ({ gate }) => {
    if (gate) await fetch(gate);
    return { path: ['beside'] };
  })
  .addNode('end', () => ({ path: ['end'] }))
  .addEdge('__start__', 'between')
  .addEdge('__start__', 'beside')
  .addEdge(['between', 'beside'], 'end')
  .compile();

function ask(question: string) {
  const answer = interrupt(question);
  if (answer === 'fail') throw new Error('The answer is fail.');
  return { path: [`${question} ${answer}`] };
}

const questions = new StateGraph(State)
  .addNode('one', () => ask('one?'))
  .addNode('two', () => ask('two?'))
  .addEdge('__start__', 'one')
  .addEdge('one', 'two')
  .compile();

/** Interrupts with four questions, one after the other: two in a subgraph, and two in one node. Fails if the answer is `fail`. */
export const inquiring = new StateGraph(State)
  .addNode('questions', questions)
  .addNode('more', () => ({ path: [...ask('three?').path, ...ask('four?').path] }))
  .addEdge('__start__', 'questions')
  .addEdge('questions', 'more')
  .compile();
