import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { GraphRequest } from '../../../../pipelines/agents/workers/messages.ts';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { forSuite } from '../../../for-suite.ts';

const under = forSuite(() => openPoolUnderTest('basic'));

const ask = async (request: GraphRequest) => JSON.parse(await under.pool.query(request));
const threadOf = (threadId: string, graphId: string) => ({
  deploymentId: under.threads.deploymentId,
  threadId,
  graphId,
  config: {},
});
const state = (threadId: string, graphId: string, more = {}) =>
  ask({ kind: 'state', thread: threadOf(threadId, graphId), subgraphs: false, ...more });
const history = (threadId: string, graphId: string, more = {}) =>
  ask({ kind: 'history', thread: threadOf(threadId, graphId), limit: 10, ...more });

describe('state', () => {
  test('of a thread without runs is empty', async () => {
    expect(await state(await under.threads.newThread(), 'steps')).toEqual({
      values: {},
      next: [],
      tasks: [],
      checkpoint: null,
      parent_checkpoint: null,
      metadata: {},
      created_at: null,
      interrupts: [],
    });
  });

  test('of an interrupted thread contains the interrupt', async () => {
    const { threadId, runId } = await under.run('ask', { input: { question: 'Sure?' } });
    const interrupt = { id: expect.any(String), value: { question: 'Sure?' } };
    expect(await state(threadId, 'ask')).toMatchObject({
      values: { question: 'Sure?' },
      next: ['ask'],
      tasks: [{ name: 'ask', error: null, interrupts: [interrupt], checkpoint: null, state: null, result: null }],
      checkpoint: { thread_id: threadId, checkpoint_ns: '', checkpoint_id: expect.any(String) },
      parent_checkpoint: { thread_id: threadId },
      metadata: { source: 'loop', step: 1, run_id: runId, thread_id: threadId },
      created_at: expect.stringMatching(/^\d{4}-.*Z$/),
      interrupts: [interrupt],
    });
  });

  test('can be read at a checkpoint, and a missing checkpoint is refused', async () => {
    const { threadId } = await under.run('steps', { input: { steps: 2 } });
    const states = await history(threadId, 'steps');
    const { checkpoint_id } = states[1].checkpoint;
    expect(await state(threadId, 'steps', { checkpoint: { checkpoint_id } })).toMatchObject({ values: { count: 1 } });
    const gone = { checkpoint_id: '1ef00000-0000-6000-8000-000000000000' };
    await expect(state(threadId, 'steps', { checkpoint: gone })).rejects.toMatchObject({
      code: 'CHECKPOINT_NOT_FOUND',
    });
  });

  test('of an interrupted subgraph is included or addressed by namespace', async () => {
    const { threadId } = await under.run('parent', { input: { ask: true } });
    const short = await state(threadId, 'parent');
    const namespace = short.tasks[0].checkpoint.checkpoint_ns;
    expect(namespace).toMatch(/^child:/);
    const long = await state(threadId, 'parent', { subgraphs: true });
    expect(long.tasks[0].state).toMatchObject({ next: ['inner'], checkpoint: { checkpoint_ns: namespace } });
    const inside = await state(threadId, 'parent', { checkpoint: { checkpoint_ns: namespace } });
    expect(inside).toMatchObject({ next: ['inner'], tasks: [{ interrupts: [{ value: 'inside?' }] }] });
    const insideHistory = await history(threadId, 'parent', { checkpoint: { checkpoint_ns: namespace } });
    expect(insideHistory[0].checkpoint.checkpoint_ns).toBe(namespace);
  });

  test('of another deployment is not visible', async () => {
    const { threadId } = await under.run('steps');
    const thread = { ...threadOf(threadId, 'steps'), deploymentId: randomUUID() };
    expect(await ask({ kind: 'state', thread, subgraphs: false })).toMatchObject({ values: {}, checkpoint: null });
  });
});

test.each(['__proto__', 'constructor', 'nowhere'])(
  'a query or run of an unknown graph is refused: %s',
  async (graphId) => {
    const threadId = await under.threads.newThread();
    await expect(state(threadId, graphId)).rejects.toMatchObject({ code: 'GRAPH_NOT_FOUND', status: 404 });
    await expect(ask({ kind: 'schemas', graphId, config: {} })).rejects.toMatchObject({ code: 'GRAPH_NOT_FOUND' });
    const message = `Graph '${graphId}' does not exist.`;
    expect((await under.run(graphId)).outcome).toMatchObject({ kind: 'failed', error: 'GraphUnusable', message });
  },
);

test('history lists states newest first, with limit, before and metadata filter', async () => {
  const { threadId } = await under.run('steps', { input: { steps: 3 } });
  const states = await history(threadId, 'steps');
  expect(states.map(({ values }: { values: { count?: number } }) => values.count ?? 0)).toEqual([3, 2, 1, 0, 0]);
  expect(states[0].parent_checkpoint).toEqual(states[1].checkpoint);
  expect(await history(threadId, 'steps', { limit: 2 })).toEqual(states.slice(0, 2));
  expect(await history(threadId, 'steps', { before: states[1].checkpoint })).toEqual(states.slice(2));
  expect(await history(threadId, 'steps', { metadata: { step: 1 } })).toHaveLength(1);
});

describe('an update of the state', () => {
  const update = async (threadId: string, graphId: string, updates: object[][], more = {}) => {
    const [row] = await under.threads.database.query<{ token: string }>(
      `UPDATE agents.threads SET write_token = gen_random_uuid(), write_until = now() + interval '1 hour'
       WHERE thread_id = $1 RETURNING write_token AS token`,
      [threadId],
    );
    const thread = threadOf(threadId, graphId);
    return ask({ kind: 'update-state', thread, leaseToken: row!.token, updates, ...more });
  };

  test('writes as a node, on the head and on a checkpoint', async () => {
    const { threadId } = await under.run('ask', { input: { question: 'Sure?' } });
    const updated = await update(threadId, 'ask', [[{ values: { answer: 'written' }, as_node: 'ask' }]]);
    expect(updated).toMatchObject({
      state: { values: { question: 'Sure?', answer: 'written' }, next: ['finish'] },
      interrupts: {},
    });
    expect(await state(threadId, 'ask')).toMatchObject({ checkpoint: updated.checkpoint, next: ['finish'] });
    const states = await history(threadId, 'ask');
    const { checkpoint_id } = states.find(({ next }: { next: string[] }) => next[0] === 'ask').checkpoint;
    const forked = await update(threadId, 'ask', [[{ values: { question: 'Other?' }, as_node: 'prepare' }]], {
      checkpoint: { checkpoint_id },
    });
    expect(forked.state).toMatchObject({ values: { question: 'Other?' }, next: ['ask'] });
  });

  test('writes several super-steps on a thread without a state', async () => {
    const threadId = await under.threads.newThread();
    const { state: made } = await update(threadId, 'steps', [
      [{ values: { steps: 5 }, as_node: '__start__' }],
      [{ values: { count: 1, log: ['made 1'] }, as_node: 'step' }],
    ]);
    expect(made.values).toMatchObject({ steps: 5, count: 1, log: ['made 1'] });
    expect(await under.values('steps', { thread: threadId })).toMatchObject({ count: 5 });
  });

  test.each([
    ['a node that does not exist', [[{ values: {}, as_node: 'nowhere' }]]],
    ['no updates', [[]]],
    ['no super-steps', []],
  ])('%s is refused', async (_what, updates) => {
    const { threadId } = await under.run('ask');
    await expect(update(threadId, 'ask', updates)).rejects.toMatchObject({ code: 'STATE_UPDATE_INVALID', status: 422 });
  });

  test('without the lease token writes nothing', async () => {
    const { threadId } = await under.run('steps');
    const thread = threadOf(threadId, 'steps');
    const updates = [[{ values: { count: 9 }, as_node: 'step' }]];
    await expect(ask({ kind: 'update-state', thread, leaseToken: randomUUID(), updates })).rejects.toMatchObject({
      code: 'THREAD_BUSY',
    });
    expect((await state(threadId, 'steps')).values.count).toBe(3);
  });
});

describe('graph metadata', () => {
  test('returns schemas that are known at run time', async () => {
    const typed = await ask({ kind: 'schemas', graphId: 'typed', config: {} });
    expect(typed).toMatchObject({
      graph_id: 'typed',
      input_schema: { properties: { topic: { type: 'string' } } },
      output_schema: { properties: { joke: { type: 'string' } } },
      state_schema: { required: ['topic'] },
      context_schema: { properties: { tone: { enum: ['dry', 'warm'] } } },
    });
    expect(await ask({ kind: 'schemas', graphId: 'steps', config: {} })).toMatchObject({ input_schema: null });
  });

  test('returns the drawing, with xray also of subgraphs', async () => {
    const nodes = async (xray: boolean | number) =>
      (await ask({ kind: 'drawing', graphId: 'parent', config: {}, xray })).nodes.map(({ id }: { id: string }) => id);
    expect(await nodes(false)).toEqual(['__start__', 'outer', 'child', '__end__']);
    expect(await nodes(true)).toContain('child:inner');
  });

  test('returns the subgraphs', async () => {
    const subgraphs = { kind: 'subgraphs', graphId: 'parent', config: {}, recurse: true } as const;
    expect(Object.keys(await ask(subgraphs))).toEqual(['child']);
    expect(await ask({ ...subgraphs, namespace: 'none' })).toEqual({});
  });

  test('reports an error of the graph factory', async () => {
    const config = { configurable: { node: 'refused' } };
    await expect(ask({ kind: 'drawing', graphId: 'tailored', config, xray: false })).rejects.toMatchObject({
      code: 'GRAPH_FAILED',
      message: expect.stringContaining('no such node'),
    });
  });
});
