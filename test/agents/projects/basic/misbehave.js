import { randomUUID } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Annotation, StateGraph } from '@langchain/langgraph';

const other = new StateGraph(Annotation.Root({ text: Annotation }))
  .addNode('write', () => ({ text: 'written' }))
  .addEdge('__start__', 'write')
  .compile();

const deeds = {
  fine: () => {},
  fail: () => {
    throw new TypeError('the node failed on purpose');
  },
  exit: () => process.exit(3),
  kill: () => process.kill(process.pid, 'SIGKILL'),
  throw: () => {
    setImmediate(() => {
      throw new RangeError('thrown outside on purpose');
    });
    return delay(60_000);
  },
  reject: () => {
    void Promise.reject(new RangeError('rejected outside on purpose'));
    return delay(60_000);
  },
  loop: () => {
    for (;;);
  },
  // Creates the file, and blocks the event loop until the test deletes it.
  block: ({ path }) => {
    writeFileSync(path, '');
    while (existsSync(path));
  },
  leak: () => {
    const kept = [];
    for (;;) kept.push(new Array(1_000_000).fill(kept.length));
  },
  // Ignores a cancel.
  hang: ({ ms = 60_000 }) => delay(ms),
  // Never yields to the event loop. A million events take longer than any limit.
  flood: ({ ms = 20_000 }, config) => {
    const began = performance.now();
    for (let i = 0; performance.now() < began + ms; i += 1) {
      config.writer({ i });
      while (performance.now() < began + (i * ms) / 1_000_000);
    }
  },
  large: (_state, config) => config.writer({ text: 'x'.repeat(9 * 1024 * 1024) }),
  circular: (_state, config) => {
    const value = {};
    value.self = value;
    config.writer(value);
  },
  // Writes state of a thread that is not that of the run.
  elsewhere: () => other.invoke({}, { configurable: { thread_id: randomUUID() } }),
  'large-state': () => ({ text: 'x'.repeat(9 * 1024 * 1024) }),
  'large-error': () => {
    throw new Error(`${'x'.repeat(9 * 1024 * 1024)}!`);
  },
  'textless-error': () => {
    throw Object.create(null);
  },
  'circular-state': () => {
    const value = {};
    value.self = value;
    return { text: value };
  },
};

/** Writes `custom` {doing}, waits `afterMs`, then does what `how` names. */
export const graph = new StateGraph(
  Annotation.Root({
    ...{ how: Annotation, afterMs: Annotation, ms: Annotation, path: Annotation },
    ...{ text: Annotation, done: Annotation },
  }),
)
  .addNode('deed', async (state, config) => {
    config.writer({ doing: state.how });
    await delay(state.afterMs ?? 0);
    return { ...(await deeds[state.how](state, config)), done: true };
  })
  .addEdge('__start__', 'deed')
  .compile();
