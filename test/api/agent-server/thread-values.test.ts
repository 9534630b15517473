import { expect, it } from 'vitest';
import { copyThreadWithState, leaseThread } from '../../../pipelines/agents/threads/update-thread-state.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** The values of a thread are those of its newest state, also if no run has reported them. */

const server = forSuite(() => startAgentServer());

const readLog = async (threadId: string) =>
  (await server.client.threads.getState<{ log?: string[] }>(threadId)).values.log ?? [];

async function expectValuesOfState(threadId: string, values: object) {
  const { client } = server;
  const state = await client.threads.getState(threadId);
  expect(state.values).toMatchObject(values);
  expect((await client.threads.get(threadId)).values).toEqual(state.values);
  expect(await client.threads.search({ ids: [threadId], values: values as Record<string, unknown> })).toHaveLength(1);
}

it('after the worker of a run has ended', async () => {
  const { thread_id: threadId } = await server.client.threads.create();
  await server.client.runs.wait(threadId, 'misbehave', { input: { how: 'fine', path: 'before' } });
  const input = { how: 'exit', afterMs: 200, path: 'after' };
  await expect(server.client.runs.wait(threadId, 'misbehave', { input, durability: 'sync' })).rejects.toThrow(
    'WorkerEnded',
  );
  expect(await server.client.threads.get(threadId)).toMatchObject({ status: 'error' });
  await expectValuesOfState(threadId, { path: 'after' });
});

it('after a cancelled run with durability `exit`, with the results of the steps before', async () => {
  const { client } = server;
  for (let n = 0; n < 3; n += 1) {
    const { thread_id: threadId } = await client.threads.create();
    const input = { steps: 20, pauseMs: 300, text: 'during' };
    let runId = '';
    for await (const { event, data } of client.runs.stream(threadId, 'steps', { input, durability: 'exit' })) {
      if (event === 'metadata') runId = (data as { run_id: string }).run_id;
      else if ((data as { log?: string[] }).log?.includes('during 2')) await client.runs.cancel(threadId, runId);
    }
    expect(await readLog(threadId)).toContain('during 2');
    await expectValuesOfState(threadId, { text: 'during' });
  }
});

it('in a copy that is made during a run', async () => {
  const { client } = server;
  const { thread_id: threadId } = await client.threads.create();
  await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'before' } });
  const input = { steps: 20, pauseMs: 400, text: 'during' };
  const run = await client.runs.create(threadId, 'steps', { input });
  await expect.poll(() => readLog(threadId), { timeout: 20_000 }).toContain('during 2');
  const copy = await client.threads.copy(threadId);
  await client.runs.cancel(threadId, run.run_id);
  expect(copy).toMatchObject({
    status: 'interrupted',
    values: { log: expect.arrayContaining(['before 1', 'during 2']) },
  });
  await expectValuesOfState(copy.thread_id, { text: 'during' });
  expect(
    await client.runs.wait(copy.thread_id, 'steps', { input: { steps: 1, pauseMs: 0, text: 'later' } }),
  ).toMatchObject({
    log: expect.arrayContaining(['during 2']),
  });
});

it('except in a copy whose row cannot be written; the copy is returned', async () => {
  const { client, services } = server;
  const { agents } = services;
  const { thread_id: threadId } = await client.threads.create();
  await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'before' } });
  const run = await client.runs.create(threadId, 'steps', { input: { steps: 20, pauseMs: 400, text: 'during' } });
  await expect.poll(() => readLog(threadId), { timeout: 20_000 }).toContain('during 2');
  const pool: typeof agents.pool = {
    ...agents.pool,
    async query(query) {
      const copyId = (query as { thread: { threadId: string } }).thread.threadId;
      await leaseThread(agents.database, agents.deploymentId, copyId, 60_000);
      return agents.pool.query(query);
    },
  };
  const warnings: unknown[] = [];
  const logger = { warn: (...warning: unknown[]) => void warnings.push(warning) };
  const copy = await copyThreadWithState({ ...agents, pool, logger }, threadId);
  await client.runs.cancel(threadId, run.run_id);
  expect(copy).toMatchObject({ status: 'idle', values: { log: ['before 1'] } });
  expect(warnings).toMatchObject([[{ err: { code: 'THREAD_BUSY' }, threadId: copy.thread_id }, expect.any(String)]]);
});
