import { expect, it } from 'vitest';
import { lockThread, updateThreadStatus } from '../../../pipelines/agents/runs/lock-thread.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** The state that a thread has after one of its runs was stopped. */

const server = forSuite(() => startAgentServer({ config: { agentsRunTimeoutMs: 5_000 } }));
const client = createProxyTo(() => server.client);

const newThread = async () => (await client.threads.create()).thread_id;

it.each(['cancel', 'multitask strategy'])('by %s leaves the state so far on the thread and in the run', async (how) => {
  const threadId = await newThread();
  await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'first' } });
  const run = await client.runs.create(threadId, 'steps', { input: { steps: 50, pauseMs: 200, text: 'second' } });
  const readState = async () => (await client.threads.getState<{ log: string[] }>(threadId)).values;
  await expect.poll(async () => (await readState()).log.length, { timeout: 20_000 }).toBeGreaterThan(2);
  const joining = client.runs.join(threadId, run.run_id);
  if (how === 'cancel') {
    await client.runs.cancel(threadId, run.run_id, true);
    const values = await readState();
    expect(values.log.slice(0, 3)).toEqual(['first 1', 'second 2', 'second 3']);
    expect(await joining).toEqual(values);
    expect(await client.runs.join(threadId, run.run_id)).toEqual(values);
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle', values });
    return;
  }
  // The next run waits for its time, so that it changes nothing meanwhile.
  const body = { multitaskStrategy: 'interrupt', afterSeconds: 600 } as const;
  await client.runs.create(threadId, 'steps', { input: { steps: 1 }, ...body });
  expect(await joining).toEqual(await readState());
  expect((await client.threads.get(threadId)).values).toEqual(await readState());
});

it('by cancel after its process has died leaves the state so far on the thread and in the run', async () => {
  const threadId = await newThread();
  await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'first' } });
  const run = await client.runs.create(threadId, 'steps', { input: { steps: 50, pauseMs: 200, text: 'second' } });
  const readState = async () => (await client.threads.getState<{ log: string[] }>(threadId)).values;
  await expect.poll(async () => (await readState()).log.length, { timeout: 20_000 }).toBeGreaterThan(2);
  const joining = client.runs.join(threadId, run.run_id);
  // The row as it is when its lease has expired, with a next attempt that is not due yet.
  await server.database.transaction(async (tx) => {
    await lockThread(tx, server.owner.id, threadId);
    await tx.execute(
      `UPDATE agents.runs SET status = 'pending', lease_token = NULL, process_id = NULL, due_at = now() + interval '1 hour'
       WHERE run_id = $1`,
      [run.run_id],
    );
    await updateThreadStatus(tx, server.owner.id, threadId);
  });
  await client.runs.cancel(threadId, run.run_id, true);
  const values = await readState();
  expect(values.log.slice(0, 3)).toEqual(['first 1', 'second 2', 'second 3']);
  expect(await joining).toEqual(values);
  expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle', values });
});

it.each(['cancelled', 'failed'])('a %s run that has passed an interrupt leaves none on the thread', async (how) => {
  const threadId = await newThread();
  await client.runs.wait(threadId, 'working', { input: { question: 'Sure?' } });
  expect(Object.keys((await client.threads.get(threadId)).interrupts)).toHaveLength(1);
  const input = { question: null, pauseMs: 60_000, fails: how === 'failed' };
  const run = await client.runs.create(threadId, 'working', { input });
  if (how === 'failed') await client.runs.join(threadId, run.run_id).catch(() => undefined);
  else {
    await expect
      .poll(async () => (await client.threads.getState(threadId)).next, { timeout: 20_000 })
      .toEqual(['work']);
    await client.runs.cancel(threadId, run.run_id, true);
  }
  expect(await client.threads.getState(threadId)).toMatchObject({ next: ['work'], interrupts: [] });
  const { status, interrupts } = await client.threads.get(threadId);
  expect({ status, interrupts }).toEqual({ status: how === 'failed' ? 'error' : 'idle', interrupts: {} });
});

it('a timeout leaves the state so far on the thread', async () => {
  const threadId = await newThread();
  await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'first' } });
  const run = await client.runs.create(threadId, 'steps', { input: { steps: 500, pauseMs: 400, text: 'second' } });
  await client.runs.join(threadId, run.run_id).catch(() => undefined);
  const { values } = await client.threads.getState<{ log: string[] }>(threadId);
  expect(values.log.slice(0, 3)).toEqual(['first 1', 'second 2', 'second 3']);
  expect(await client.runs.get(threadId, run.run_id)).toMatchObject({ status: 'timeout' });
  expect(await client.threads.get(threadId)).toMatchObject({ status: 'error', values });
});
