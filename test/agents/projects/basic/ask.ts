import { setTimeout as pause } from 'node:timers/promises';
import { Annotation, interrupt, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({ question: Annotation<string>, answer: Annotation<string>, result: Annotation<string> });

const steps = new StateGraph(State)
  .addNode('prepare', ({ question }) => ({ question: question ?? 'Go on?' }))
  .addNode('ask', ({ question }) => ({ answer: String(interrupt({ question })) }))
  .addNode('finish', ({ answer }) => ({ result: `answered: ${answer}` }))
  .addEdge('__start__', 'prepare')
  .addEdge('prepare', 'ask')
  .addEdge('ask', 'finish');

export const graph = steps.compile();

const Answers = Annotation.Root({
  answers: Annotation<string[]>({ reducer: (before, more) => [...before, ...more], default: () => [] }),
});

/** A graph with an interrupt that asks two questions at once. */
export const both = new StateGraph(Answers)
  .addNode('left', () => ({ answers: [`left: ${interrupt('left?')}`] }))
  .addNode('right', () => ({ answers: [`right: ${interrupt('right?')}`] }))
  .addEdge('__start__', 'left')
  .addEdge('__start__', 'right')
  .compile();

/** A graph that interrupts if there is a question, and then works for `pauseMs` or fails. */
export const working = new StateGraph(
  Annotation.Root({ question: Annotation<string | null>, pauseMs: Annotation<number>, fails: Annotation<boolean> }),
)
  .addNode('ask', ({ question }) => {
    if (question !== null) interrupt({ question });
    return {};
  })
  .addNode('work', async ({ pauseMs, fails }) => {
    if (fails) throw new Error('failed on purpose');
    await pause(pauseMs);
    return {};
  })
  .addEdge('__start__', 'ask')
  .addEdge('ask', 'work')
  .compile();

/** A graph that is compiled to stop before its last node, without an interrupt value. */
export const pausing = new StateGraph(State)
  .addNode('first', () => ({ answer: 'first' }))
  .addNode('second', ({ answer }) => ({ result: `${answer}, second` }))
  .addEdge('__start__', 'first')
  .addEdge('first', 'second')
  .compile({ interruptBefore: ['second'] });
