import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { readErrorStatus, startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() => startAgentServer());
const threads = createProxyTo(() => agent.client.threads);

const nobody = randomUUID();

/** Creates a thread whose state appears to be written by two nodes. */
const started = (metadata: object = {}) =>
  threads.create({
    graphId: 'steps',
    metadata: { ...metadata },
    supersteps: [
      { updates: [{ values: { text: 'a', steps: 3 }, asNode: '__input__' }] },
      { updates: [{ values: { count: 1, log: ['a 1'] }, asNode: 'step' }] },
    ],
  });

describe('threads', () => {
  it('are created, updated and deleted', async () => {
    const threadId = randomUUID();
    const made = await threads.create({ threadId, metadata: { a: 1, b: { c: 2 } } });
    expect(made).toMatchObject({
      thread_id: threadId,
      status: 'idle',
      metadata: { a: 1, b: { c: 2 } },
      interrupts: {},
    });
    expect(made).not.toHaveProperty('ttl');
    for (const name of ['created_at', 'updated_at', 'state_updated_at'] as const) {
      expect(new Date(String(made[name])).getTime()).toBeGreaterThan(Date.now() - 60_000);
    }
    expect(await threads.get(threadId)).toEqual(made);
    expect((await threads.update(threadId, { metadata: { b: 3 } })).metadata).toEqual({ a: 1, b: 3 });
    await threads.patchState(threadId, { d: 4 });
    expect((await threads.get(threadId)).metadata).toEqual({ a: 1, b: 3, d: 4 });
    expect(await threads.update(threadId, { metadata: { e: 5 }, returnMinimal: true })).toBeUndefined();

    const again = await agent.ask('DELETE', `/threads/${threadId}`);
    expect([again.status, await again.text()]).toEqual([204, '']);
    expect(await readErrorStatus(threads.get(threadId))).toBe(404);
  });

  it('of the same id are created once, whatever the case of its letters', async () => {
    const { thread_id: threadId } = await threads.create({ metadata: { first: true } });
    expect(await readErrorStatus(threads.create({ threadId: threadId.toUpperCase() }))).toBe(409);
    const same = await threads.create({ threadId, metadata: { first: false }, ifExists: 'do_nothing' });
    expect(same.metadata).toEqual({ first: true });
    expect(await threads.get(threadId.toUpperCase())).toMatchObject({ thread_id: threadId });
  });

  it('return their TTL if requested', async () => {
    const { thread_id: id } = await threads.create({ ttl: 30 });
    const { ttl } = (await threads.get(id, { include: ['ttl'] })) as unknown as { ttl: Record<string, unknown> };
    expect(ttl).toMatchObject({ strategy: 'delete', ttl_minutes: 30 });
    expect(new Date(String(ttl.expires_at)).getTime()).toBeGreaterThan(Date.now() + 29 * 60_000);
    await threads.update(id, { ttl: { ttl: 60, strategy: 'keep_latest' as never } });
    const answer = await agent.ask('GET', `/threads/${id}?include=ttl`);
    expect(await answer.json()).toMatchObject({ ttl: { strategy: 'keep_latest', ttl_minutes: 60 } });
  });

  it('are searched by metadata, state, status and id, in pages, and counted', async () => {
    const group = randomUUID();
    const [a, b] = [await started({ group }), await threads.create({ metadata: { group, more: { x: [1, 2] } } })];
    const searchThreadIds = async (query: object) =>
      (await threads.search({ ...query, sortOrder: 'asc' })).map(({ thread_id: id }) => id);
    expect(await searchThreadIds({ metadata: { group } })).toEqual([a.thread_id, b.thread_id]);
    expect(await searchThreadIds({ metadata: { group, more: { x: [2] } } })).toEqual([b.thread_id]);
    expect(await searchThreadIds({ metadata: { group }, values: { log: ['a 1'] } })).toEqual([a.thread_id]);
    expect(await searchThreadIds({ metadata: { group }, status: 'interrupted' })).toEqual([a.thread_id]);
    expect(await searchThreadIds({ ids: [b.thread_id, nobody] })).toEqual([b.thread_id]);
    expect(await threads.count({ metadata: { group }, status: 'idle' })).toBe(1);

    const page = await agent.ask('POST', '/threads/search', { metadata: { group }, limit: 1 });
    expect([page.headers.get('x-pagination-total'), page.headers.get('x-pagination-next')]).toEqual(['2', '1']);
    const last = await agent.ask('POST', '/threads/search', { metadata: { group }, limit: 1, offset: 1 });
    expect(last.headers.get('x-pagination-next')).toBeNull();

    const [picked] = await threads.search({
      ids: [a.thread_id],
      select: ['thread_id'],
      extract: { last: 'values.log[-1]', step: 'values.count', group: 'metadata.group', none: 'values.none[3].x' },
    });
    expect(picked).toEqual({
      thread_id: a.thread_id,
      extracted: { last: 'a 1', step: 1, group, none: null },
    });
  });

  it('are copied with their history, and are independent afterwards', async () => {
    const { thread_id: id } = await started({ kept: true });
    const copy = await threads.copy(id);
    expect(copy.thread_id).not.toBe(id);
    expect(copy.metadata).toMatchObject({ kept: true, graph_id: 'steps' });
    expect(await threads.getHistory(copy.thread_id)).toHaveLength((await threads.getHistory(id)).length);
    await threads.updateState(copy.thread_id, { values: { log: ['copy'] }, asNode: 'step' });
    expect((await threads.getState<{ log: string[] }>(copy.thread_id)).values.log).toEqual(['a 1', 'copy']);
    expect((await threads.getState<{ log: string[] }>(id)).values.log).toEqual(['a 1']);
  });

  it('return the config of their last run, which is used to read their state', async () => {
    const { client } = agent;
    const config = { tags: ['base'], configurable: { style: 'dry', node: 'speak' } };
    const { assistant_id: assistantId } = await client.assistants.create({ graphId: 'tailored', config });
    const { thread_id: id, config: first } = await threads.create();
    expect(first).toEqual({});
    const own = { configurable: { style: 'warm', user_id: 'ana', langgraph_auth_user_id: 'ana' } };
    await client.runs.wait(id, assistantId, { input: { text: 'a' }, config: own });
    const expected = { tags: ['base'], configurable: { style: 'warm', node: 'speak', user_id: 'ana' } };
    expect(await threads.get(id)).toMatchObject({ config: expected });
    // A run without a config changes nothing.
    await client.runs.wait(id, 'tailored', { input: { text: 'a' } });
    const { thread_id: copy } = await threads.copy(id);
    for (const { config: threadConfig } of [await threads.get(id), await threads.get(copy)])
      expect(threadConfig).toEqual(expected);
    const asked = { input: { text: 'a' }, config: { configurable: { node: 'other' } }, interruptBefore: ['other'] };
    await client.runs.wait(id, 'tailored', asked);
    expect(await threads.getState(id)).toMatchObject({ next: ['other'] });
    expect((await threads.get(id)).config).toEqual({ configurable: { node: 'other', user_id: 'ana' } });
  });

  it('are pruned entirely or to their latest state', async () => {
    const [a, b] = [await started(), await started()];
    expect(await threads.prune([a.thread_id, nobody])).toEqual({ pruned_count: 1 });
    expect(await readErrorStatus(threads.get(a.thread_id))).toBe(404);
    const latest = await threads.getState(b.thread_id);
    expect(await threads.prune([b.thread_id], { strategy: 'keep_latest' })).toEqual({ pruned_count: 1 });
    expect(await threads.getHistory(b.thread_id)).toHaveLength(1);
    expect((await threads.getState(b.thread_id)).values).toEqual(latest.values);
  });
});

describe('the state of a thread', () => {
  it('is empty before any run', async () => {
    const { thread_id: id } = await threads.create();
    expect(await threads.getState(id)).toMatchObject({ values: {}, next: [], tasks: [], checkpoint: null });
    expect(await threads.getHistory(id)).toEqual([]);
    const updated = await agent.ask('POST', `/threads/${id}/state`, { values: {} });
    expect([updated.status, await updated.json()]).toMatchObject([400, { code: 'THREAD_WITHOUT_GRAPH' }]);
    const { thread_id: fresh } = await threads.create({ graphId: 'steps' });
    expect(await threads.getState(fresh)).toMatchObject({ next: [], tasks: [], checkpoint: null });
  });

  it('is read at its head and at each checkpoint, by both routes', async () => {
    const { thread_id: id } = await started();
    const head = await threads.getState(id);
    expect(head).toMatchObject({ values: { count: 1, log: ['a 1'] }, next: ['step'] });
    expect(head.checkpoint).toMatchObject({ thread_id: id, checkpoint_id: expect.any(String) });
    const history = await threads.getHistory(id);
    expect(history[0]).toEqual(head);
    expect(history.at(-1)?.values).not.toHaveProperty('count', 1);
    const [, older] = history;
    const at = older?.checkpoint as { checkpoint_id: string; thread_id: string; checkpoint_ns: string };
    expect(await threads.getState(id, at.checkpoint_id)).toEqual(older);
    expect(await threads.getState(id, at as never)).toEqual(older);
    expect(await threads.getState(id, undefined, { subgraphs: true })).toEqual(head);
    for (const missing of ['1ef4f797-8335-6428-8001-8a1503f9b875', 'none']) {
      expect(await readErrorStatus(threads.getState(id, missing))).toBe(404);
    }
  });

  it('is returned with only the selected fields', async () => {
    const { thread_id: id } = await started();
    const { next, values, checkpoint } = await threads.getState<{ count: number; log: string[] }>(id);
    const read = async (path: string, body?: object) =>
      (await agent.ask(body ? 'POST' : 'GET', `/threads/${id}/${path}`, body)).json();
    const select = ['next', 'values.log'];
    const selected = { next, values: { log: values.log } };
    const query = select.map((each) => `select=${each}`).join('&');
    expect(await read(`state?${query}`)).toEqual(selected);
    expect(await read(`state/${checkpoint.checkpoint_id}?${query}`)).toEqual(selected);
    expect(await read('state/checkpoint', { checkpoint, select })).toEqual(selected);
    expect(await read('state/checkpoint?subgraphs=true', { checkpoint })).toMatchObject({ values });
    expect(await read('state/checkpoint', { checkpoint, select: ['values', 'values.log'] })).toEqual({ values });
    expect((await read('history', { select, limit: 1 })) as unknown[]).toEqual([selected]);
    expect((await read(`history?${query}&limit=1`)) as unknown[]).toEqual([selected]);
    expect((await agent.ask('POST', `/threads/${id}/history`, { select: ['colour'] })).status).toBe(422);
    const { thread_id: empty } = await threads.create();
    expect(await (await agent.ask('GET', `/threads/${empty}/state?select=values`)).json()).toEqual({ values: {} });
  });

  it('has a history with a limit and a `before` checkpoint, in every form that clients send', async () => {
    const { thread_id: id } = await started();
    const all = await threads.getHistory(id);
    expect(all.length).toBeGreaterThanOrEqual(2);
    const newest = all[0]?.checkpoint as { checkpoint_id: string };
    const rest = all.slice(1);
    expect(await threads.getHistory(id, { limit: 1 })).toEqual(all.slice(0, 1));
    for (const before of [newest.checkpoint_id, newest, { configurable: newest }]) {
      expect(await threads.getHistory(id, { before: before as never })).toEqual(rest);
      const text = typeof before === 'string' ? before : JSON.stringify(before);
      const answer = await agent.ask('GET', `/threads/${id}/history?limit=10&before=${encodeURIComponent(text)}`);
      expect(await answer.json()).toEqual(rest);
    }
    expect(await threads.getHistory(id, { metadata: { source: 'none' } })).toEqual([]);
  });

  it('is written as a node, on the head or on an older checkpoint, and appears in the thread', async () => {
    const { thread_id: id } = await started();
    const [, older] = await threads.getHistory(id);
    const { checkpoint } = (await threads.updateState(id, {
      values: { count: 2, log: ['by hand'] },
      asNode: 'step',
    })) as unknown as { checkpoint: { thread_id: string; checkpoint_id: string } };
    expect(checkpoint.thread_id).toBe(id);
    const head = await threads.getState<{ log: string[] }>(id);
    expect(head.checkpoint?.checkpoint_id).toBe(checkpoint.checkpoint_id);
    expect(head.values.log).toEqual(['a 1', 'by hand']);
    expect(await threads.get(id)).toMatchObject({ status: 'interrupted', values: { log: ['a 1', 'by hand'] } });

    await threads.updateState(id, {
      values: { count: 1, log: ['branch'] },
      asNode: 'step',
      checkpointId: older?.checkpoint?.checkpoint_id as string,
    });
    expect((await threads.getState<{ log: string[] }>(id)).values.log).toEqual(['branch']);
    const unknown = await agent.ask('POST', `/threads/${id}/state`, { values: {}, as_node: 'nobody' });
    expect([unknown.status, await unknown.json()]).toMatchObject([422, { code: 'STATE_UPDATE_INVALID' }]);
  });

  it('is not written on a missing checkpoint, which the library treats as empty state', async () => {
    const { thread_id: id } = await started();
    const before = await threads.getState(id);
    const values = { count: 5 };
    for (const where of [{ checkpoint_id: randomUUID() }, { checkpoint: { checkpoint_id: randomUUID() } }]) {
      const refused = await agent.ask('POST', `/threads/${id}/state`, { values, as_node: 'step', ...where });
      expect([refused.status, await refused.json()]).toMatchObject([404, { code: 'CHECKPOINT_NOT_FOUND' }]);
    }
    expect(await threads.getState(id)).toEqual(before);
    const update = { command: 5, as_node: 'step' };
    const made = await agent.ask('POST', '/threads', {
      metadata: { graph_id: 'steps' },
      supersteps: [{ updates: [update] }],
    });
    expect(made.status).toBe(422);
  });

  it('is created atomically: a thread whose first state is rejected does not exist', async () => {
    const threadId = randomUUID();
    const supersteps = [{ updates: [{ values: {}, as_node: 'nobody' }] }];
    const body = { thread_id: threadId, metadata: { graph_id: 'steps' }, supersteps };
    expect((await agent.ask('POST', '/threads', body)).status).toBe(422);
    expect(await readErrorStatus(threads.get(threadId))).toBe(404);
    expect((await agent.ask('POST', '/threads', { thread_id: threadId, supersteps })).status).toBe(400);
    expect(await readErrorStatus(threads.get(threadId))).toBe(404);
  });

  it('is not written while the thread is busy, and can be read after the run', async () => {
    const { thread_id: id } = await threads.create();
    const run = await agent.client.runs.create(id, 'steps', { input: { steps: 2, pauseMs: 300 } });
    await expect.poll(() => threads.get(id).then(({ status }) => status)).toBe('busy');
    const answer = await agent.ask('POST', `/threads/${id}/state`, { values: {}, as_node: 'step' });
    expect([answer.status, await answer.json()]).toMatchObject([409, { code: 'THREAD_BUSY' }]);
    await agent.client.runs.join(id, run.run_id);
    const state = await threads.getState<{ log: string[] }>(id);
    expect(state).toMatchObject({ next: [], values: { log: ['step 1', 'step 2'] }, metadata: { run_id: run.run_id } });
    await expect.poll(() => threads.get(id)).toMatchObject({ status: 'idle', values: state.values });
  });

  it('between two steps is that of the last checkpoint, from which the graph continues', async () => {
    const { thread_id: id } = await threads.create();
    await agent.client.runs.wait(id, 'ask', { input: { question: 'Go?' } });
    // The same state as while the checkpoint after a step is in flight: the node has written, but the new checkpoint is
    // not stored.
    const { checkpoint } = await threads.getState(id);
    const deleted = await agent.database.execute('DELETE FROM agents.checkpoints WHERE checkpoint_id = $1', [
      checkpoint.checkpoint_id,
    ]);
    expect(deleted).toBe(1);
    expect(await threads.getState(id)).toMatchObject({ next: ['prepare'], tasks: [{ name: 'prepare' }] });
    await agent.client.runs.wait(id, 'ask', { input: null });
    expect(await threads.getState(id)).toMatchObject({ next: ['ask'], values: { question: 'Go?' } });
  });

  it('contains its interrupts, including those of subgraphs', async () => {
    const { thread_id: id } = await threads.create();
    await agent.client.runs.wait(id, 'parent', { input: { ask: true } });
    const { tasks } = await threads.getState(id, undefined, { subgraphs: true });
    expect(tasks[0]).toMatchObject({ name: 'child', interrupts: [{ value: 'inside?' }] });
    expect(tasks[0]?.state).toMatchObject({ next: ['inner'] });
    const { interrupts } = await threads.get(id);
    expect(Object.values(interrupts).flat()).toMatchObject([{ value: 'inside?' }]);
  });

  it('of a subgraph is written while its thread waits for a reply', async () => {
    const { thread_id: id } = await threads.create();
    await agent.client.runs.wait(id, 'parent', { input: { ask: true } });
    const { tasks } = await threads.getState(id, undefined, { subgraphs: true });
    const { checkpoint } = tasks[0]?.state ?? {};
    await threads.updateState(id, { values: { path: ['written'] }, ...(checkpoint && { checkpoint }) });
    const written = await threads.getState(id, undefined, { subgraphs: true });
    expect(written).toMatchObject({ next: ['child'], values: { path: ['outer'] } });
    expect(written.tasks[0]?.state).toMatchObject({ next: ['inner'], values: { path: ['outer', 'written'] } });
    const values = await agent.client.runs.wait(id, 'parent', { command: { resume: 'reply' } });
    expect(values).toMatchObject({ path: ['outer', 'outer', 'written', 'inner', 'reply'] });
  });
});

it.each([
  ['GET', '/threads/no-uuid', undefined, 422, 'INVALID_REQUEST'],
  ['GET', `/threads/${nobody}`, undefined, 404, 'THREAD_NOT_FOUND'],
  ['PATCH', `/threads/${nobody}`, { metadata: {} }, 404, 'THREAD_NOT_FOUND'],
  ['DELETE', `/threads/${nobody}`, undefined, 404, 'THREAD_NOT_FOUND'],
  ['POST', `/threads/${nobody}/copy`, undefined, 409, 'THREAD_TO_COPY_NOT_FOUND'],
  ['GET', `/threads/${nobody}/state`, undefined, 404, 'THREAD_NOT_FOUND'],
  ['GET', `/threads/${nobody}/history`, undefined, 404, 'THREAD_NOT_FOUND'],
  ['POST', `/threads/${nobody}/history`, {}, 404, 'THREAD_NOT_FOUND'],
  ['POST', `/threads/${nobody}/history`, { limit: 0 }, 422, 'INVALID_REQUEST'],
  ['GET', `/threads/${nobody}/history?before=%7Bx`, undefined, 422, 'INVALID_REQUEST'],
  ['POST', `/threads/${nobody}/state`, { values: {} }, 404, 'THREAD_NOT_FOUND'],
  ['POST', '/threads', { thread_id: 'x' }, 422, 'INVALID_REQUEST'],
  ['POST', '/threads', { ttl: { ttl: -1 } }, 422, 'INVALID_REQUEST'],
  ['POST', '/threads', { metadata: { a: '\0' } }, 422, 'INVALID_REQUEST'],
  ['POST', '/threads/search', { status: 'asleep' }, 422, 'INVALID_REQUEST'],
  ['POST', '/threads/search', { extract: { a: 'secrets.x' } }, 422, 'INVALID_REQUEST'],
  ['POST', '/threads/prune', { thread_ids: ['x'] }, 422, 'INVALID_REQUEST'],
] as const)('%s %s %j is %i %s', async (method, path, body, status, code) => {
  const answer = await agent.ask(method, path, body);
  expect([answer.status, await answer.json()]).toMatchObject([status, { code, detail: expect.anything() }]);
});
