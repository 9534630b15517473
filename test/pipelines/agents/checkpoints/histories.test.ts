import { Annotation, Command, END, interrupt, MemorySaver, Send, START, StateGraph } from '@langchain/langgraph';
import type { BaseCheckpointSaver } from '@langchain/langgraph-checkpoint';
import { expect, test } from 'vitest';
import {
  buildThreadKey,
  copyCheckpointsSql,
  deleteCheckpoints,
  keepLatestCheckpoint,
  rollbackCheckpoints,
} from '../../../../pipelines/agents/checkpoints/copy-checkpoints.ts';
import { LeasedSaver } from '../../../../pipelines/agents/checkpoints/leased-saver.ts';
import { findHeadRun } from '../../../../pipelines/agents/checkpoints/stored-tuples.ts';
import { forSuite } from '../../../for-suite.ts';
import fc from '../../../house/fast-check.ts';
import { type ActiveRun, openThreads } from './threads.ts';

let runs = 0;
// Every second run waits for its writes, as with durability `sync`.
const early = { batchDelayMs: 1, onFailure: () => undefined };
const threads = forSuite(() => openThreads(() => (runs++ % 2 === 0 ? early : undefined)));

const append = Annotation<string[]>({ reducer: (left, right) => [...left, ...right], default: () => [] });
const State = Annotation.Root({ log: append, last: Annotation<string>, asked: Annotation<number> });
const Inner = Annotation.Root({ log: append, depth: Annotation<number> });

/**
 * Returns a graph with steps, parallel branches, a subgraph, sends, and interrupts: two in succession in one node and
 * one in the subgraph.
 */
function compileGraph(checkpointer: BaseCheckpointSaver, fails: () => boolean) {
  const inner = new StateGraph(Inner)
    .addNode('deep', ({ log }) => ({
      depth: log.length,
      log: log.some((line) => line.startsWith('deep?')) ? [`deep:${interrupt('deep?')}`] : ['deep'],
    }))
    .addNode('deeper', () => ({ log: ['deeper'] }))
    .addEdge(START, 'deep')
    .addEdge('deep', 'deeper')
    .addEdge('deeper', END)
    .compile();
  return new StateGraph(State)
    .addNode('first', ({ last }) => ({ log: [`first of ${last}`] }))
    .addNode('left', () => ({ log: ['left'] }))
    .addNode('right', ({ last }) => {
      if (last.includes('fail') && fails()) throw new Error('as asked');
      return { log: ['right'] };
    })
    .addNode('ask', ({ last, asked = 0 }) =>
      last.includes('ask')
        ? { log: [`told ${interrupt('one?')} and ${interrupt('two?')}`], asked: asked + 1 }
        : { log: [] },
    )
    .addNode('inside', async ({ last }, config) => ({
      log: (await inner.invoke({ log: [last.includes('deep') ? 'deep?' : 'flat'] }, config)).log.slice(1),
    }))
    .addNode('worker', ({ last }) => ({ log: [`sent ${last}`] }))
    .addEdge(START, 'first')
    .addEdge('first', 'left')
    .addEdge('first', 'right')
    .addEdge('left', 'ask')
    .addEdge('right', 'ask')
    .addEdge('ask', 'inside')
    .addConditionalEdges('inside', ({ last }) => [
      new Send('worker', { last: `${last}1` }),
      new Send('worker', { last }),
    ])
    .addEdge('worker', END)
    .compile({ checkpointer });
}

/** Compares a thread in memory, which is the model ("theirs"), with the same thread in Postgres ("ours"). */
class SaverPair {
  readonly memory = new MemorySaver();
  threadId = '';
  failing = { theirs: false, ours: false };
  #theirs = compileGraph(this.memory, () => this.failing.theirs);
  get key() {
    return buildThreadKey(threads.deploymentId, this.threadId);
  }
  #ours = (saver: LeasedSaver) => compileGraph(saver, () => this.failing.ours);

  async view() {
    const ours = this.#ours(new LeasedSaver(threads.pool));
    const [theirHistory, ourHistory] = await Promise.all([
      readHistory(this.#theirs, this.key),
      readHistory(ours, this.key),
    ]);
    expect(ourHistory.map(({ shown }) => shown)).toEqual(theirHistory.map(({ shown }) => shown));
    return theirHistory.map(({ id }, index) => ({
      theirs: id,
      ours: ourHistory[index]!.id,
      next: theirHistory[index]!.next,
    }));
  }

  /**
   * Runs the graph on both threads.
   *
   * @returns the run that wrote.
   */
  async run(input: unknown, at?: { readonly theirs: string; readonly ours: string }): Promise<ActiveRun> {
    const run = await threads.startRun(this.threadId);
    await this.#both(run, input, at);
    return run;
  }

  async #both(run: ActiveRun, input: unknown, at?: { readonly theirs: string; readonly ours: string }) {
    const config = (checkpoint_id?: string) => ({
      configurable: { thread_id: this.key, checkpoint_ns: '', ...(checkpoint_id !== undefined && { checkpoint_id }) },
    });
    const results = await Promise.allSettled([
      this.#theirs.invoke(input as never, config(at?.theirs)),
      this.#ours(run.saver).invoke(input as never, config(at?.ours)),
    ]);
    await run.saver.settled();
    expect(results[1].status).toBe(results[0].status);
    // The head that one saver has cached equals what another saver reads.
    const head = { configurable: { thread_id: this.key, checkpoint_ns: '' } };
    expect(await run.saver.getTuple(head)).toEqual(await new LeasedSaver(threads.pool).getTuple(head));
  }

  /** Runs two attempts: the first one fails in the middle, the second one resumes from there. */
  async runTwice(input: unknown): Promise<ActiveRun> {
    this.failing = { theirs: true, ours: true };
    const first = await this.run(input);
    this.failing = { theirs: false, ours: false };
    const second = await threads.startAgain(first);
    expect(await findHeadRun(threads.database, this.key)).toBe(second.runId);
    await this.#both(second, null);
    return second;
  }

  async update(values: object, at?: { readonly theirs: string; readonly ours: string }) {
    const config = (checkpoint_id?: string) => ({
      configurable: { thread_id: this.key, checkpoint_ns: '', ...(checkpoint_id !== undefined && { checkpoint_id }) },
    });
    await this.#theirs.updateState(config(at?.theirs), values, 'left');
    await this.#ours(await threads.leaseThread(this.threadId)).updateState(config(at?.ours), values, 'left');
  }

  snapshot() {
    return structuredClone({ storage: this.memory.storage, writes: this.memory.writes });
  }
  restore({ storage, writes }: ReturnType<SaverPair['snapshot']>) {
    Object.assign(this.memory, { storage, writes });
  }
  /** Copies a thread in the model. */
  copyModel(from: string, to: string) {
    this.memory.storage[to] = structuredClone(this.memory.storage[from]!);
    for (const [name, writes] of Object.entries(this.memory.writes)) {
      const [thread, ...rest] = JSON.parse(name) as string[];
      if (thread === from) this.memory.writes[JSON.stringify([to, ...rest])] = structuredClone(writes);
    }
  }
}

async function readHistory(graph: ReturnType<typeof compileGraph>, thread_id: string) {
  const ids: (string | undefined)[] = [];
  const found = [];
  for await (const state of graph.getStateHistory({ configurable: { thread_id } })) {
    const id = state.config.configurable?.checkpoint_id as string;
    ids.push(id);
    const { source, step } = state.metadata ?? {};
    const tasks = state.tasks.map(({ name, error, interrupts }) => ({
      name,
      failed: error !== undefined,
      interrupts: interrupts.map(({ value }) => value as unknown),
    }));
    found.push({
      id,
      next: state.next,
      parent: state.parentConfig?.configurable?.checkpoint_id,
      state,
      tasks,
      source,
      step,
    });
  }
  const head = await graph.getState({ configurable: { thread_id } }, { subgraphs: true });
  const nested = head.tasks.map(({ state }) =>
    state !== undefined && 'values' in state ? [state.values, state.next] : null,
  );
  return found.map(({ id, next, parent, state, tasks, source, step }, index) => ({
    id,
    next,
    shown: {
      values: state.values as unknown,
      next,
      tasks,
      source,
      step,
      parent: ids.indexOf(parent as string),
      ...(index === 0 && { nested }),
    },
  }));
}

const word = fc.constantFrom('plain', 'ask', 'deep', 'ask deep', 'fail');
const index = fc.nat(30);
const action = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('run' as const), word, rolledBack: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('resume' as const), rolledBack: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('fork' as const), word, index, rolledBack: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('replay' as const), index, rolledBack: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('update' as const), index }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('twice' as const), rolledBack: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('copy' as const) }) },
);
type Action = typeof action extends fc.Arbitrary<infer A> ? A : never;

async function act(pair: SaverPair, what: Action): Promise<void> {
  const points = await pair.view();
  const at = 'index' in what ? points[what.index % Math.max(points.length, 1)] : undefined;
  if (what.kind === 'copy') {
    const from = pair.key;
    pair.threadId = await threads.newThread();
    if (points.length > 0) pair.copyModel(from, pair.key);
    await threads.database.execute(`WITH ${copyCheckpointsSql} SELECT`, [from, pair.key, pair.threadId]);
    return;
  }
  if (what.kind === 'update') return at && pair.update({ log: ['edited'], last: 'plain' }, at);
  const before = pair.snapshot();
  const rowsBefore = await threads.rowsOf(pair.key);
  const started =
    what.kind === 'resume'
      ? (points[0]?.next.length ?? 0) > 0 && pair.run(new Command({ resume: 'yes' }))
      : what.kind === 'replay'
        ? at && pair.run(null, at)
        : what.kind === 'twice'
          ? pair.runTwice({ last: 'fail' })
          : pair.run({ last: what.word }, at);
  const run = await started;
  if (!run) return;
  await threads.endRun(run);
  if (!what.rolledBack) return;
  await threads.database.transaction((sql) => rollbackCheckpoints(sql, pair.key, run.runId));
  pair.restore(before);
  expect(await threads.rowsOf(pair.key)).toEqual(rowsBefore);
}

test('any history of runs, forks, rollbacks, copies and second attempts reads back as from MemorySaver', async () => {
  const history = async (actions: Action[]) => {
    const pair = new SaverPair();
    pair.threadId = await threads.newThread();
    for (const what of actions) await act(pair, what);
    await pair.view();
  };
  const property = fc.asyncProperty(fc.array(action, { minLength: 2, maxLength: 7 }), history);
  const examples: [Action[]][] = [
    // A resume that interrupts again and is then rolled back leaves neither its resume value nor its interrupt.
    [
      [
        { kind: 'run', word: 'ask deep', rolledBack: false },
        { kind: 'resume', rolledBack: true },
        { kind: 'resume', rolledBack: false },
        { kind: 'resume', rolledBack: true },
        { kind: 'resume', rolledBack: false },
        { kind: 'resume', rolledBack: true },
        { kind: 'resume', rolledBack: false },
      ],
    ],
  ];
  await fc.assert(property, { numRuns: 25, examples, endOnFailure: true });
}, 120_000);

test('keepLatestCheckpoint keeps only the latest state of a thread, which can be resumed', async () => {
  for (const [word, resumes] of [
    ['plain', 0],
    ['ask', 0],
    ['deep', 0],
    ['ask deep', 2],
  ] as const) {
    const pair = new SaverPair();
    pair.threadId = await threads.newThread();
    for (const input of ['plain', word]) await threads.endRun(await pair.run({ last: input }));
    for (let count = 0; count < resumes; count += 1)
      await threads.endRun(await pair.run(new Command({ resume: 'yes' })));
    const ours = compileGraph(new LeasedSaver(threads.pool), () => false);
    const [before] = await readHistory(ours, pair.key);
    await keepLatestCheckpoint(threads.database, [pair.key]);
    const after = await readHistory(ours, pair.key);
    expect(after).toHaveLength(1);
    expect(after[0]).toEqual({ ...before, shown: { ...before!.shown, parent: -1 } });
    expect((await threads.rowsOf(pair.key)).checkpoints).toBe(word.includes('deep') ? 2 : 1);
    const run = await threads.startRun(pair.threadId);
    const nextInput = before!.next.length > 0 ? new Command({ resume: 'yes' }) : { last: 'plain' };
    await compileGraph(run.saver, () => false).invoke(nextInput as never, { configurable: { thread_id: pair.key } });
    await run.saver.settled();
    await deleteCheckpoints(threads.database, [pair.key]);
    expect(await threads.rowsOf(pair.key)).toEqual({ checkpoints: 0, blobs: 0, writes: 0 });
  }
});
