import { Annotation, interrupt, Send, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({
  n: Annotation,
  how: Annotation,
  hold: Annotation,
  runs: Annotation,
  done: Annotation({ reducer: (before, more) => before + more, default: () => 0 }),
  maxActive: Annotation({ reducer: (before, other) => Math.max(before, other), default: () => 0 }),
  maxTurnMs: Annotation,
});

/** Number of runs of `wide` that have started and not ended, and that have ended since `turns` began. */
let active = 0;
let ended = 0;

/** Number of tasks that wait, and the tasks that wait for others. */
let waiting = 0;
const held = [];

/**
 * Executes `n` tasks in one step. With `how`, task 150 fails, or every 60th task interrupts, or all tasks wait: the first
 * `hold` tasks until all of them wait, and each for a moment. `maxActive` is then the maximum number of tasks that waited at
 * the same time.
 */
export const wide = new StateGraph(State)
  .addNode('start', () => {
    active += 1;
    return {};
  })
  .addNode('item', async ({ i, how, hold }) => {
    if (how === 'fail' && i === 150) throw new RangeError('on purpose');
    if (how === 'ask' && i % 60 === 0) interrupt(i);
    if (how !== 'wait') return { done: 1 };
    waiting += 1;
    const maxActive = waiting;
    if (i < hold) {
      const others = new Promise((resolve) => held.push(resolve));
      if (held.length === hold) for (const release of held.splice(0)) release();
      await others;
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
    waiting -= 1;
    return { done: 1, maxActive };
  })
  .addNode('end', () => {
    active -= 1;
    ended += 1;
    return {};
  })
  .addEdge('__start__', 'start')
  .addConditionalEdges(
    'start',
    ({ n, how, hold }) => Array.from({ length: n }, (_, i) => new Send('item', { i, how, hold })),
    ['item'],
  )
  .addEdge('item', 'end')
  .compile();

/** Waits for the end of `runs` runs of `wide` in the same process. `maxTurnMs` is the CPU time of the longest turn. */
export const turns = new StateGraph(State)
  .addNode('measure', async ({ runs }) => {
    let maxTurnMs = 0;
    ended = 0;
    for (let last = process.cpuUsage(); ended < runs || active > 0; last = process.cpuUsage()) {
      await new Promise(setImmediate);
      const { user, system } = process.cpuUsage(last);
      maxTurnMs = Math.max(maxTurnMs, (user + system) / 1_000);
    }
    return { maxTurnMs };
  })
  .addEdge('__start__', 'measure')
  .compile();
