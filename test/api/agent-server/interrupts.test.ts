import { randomUUID } from 'node:crypto';
import type { Client } from '@langchain/langgraph-sdk';
import { describe, expect, it } from 'vitest';
import { shareDeployedAgents } from './start-agents-as-deployed.ts';

/** Runs that stop to be gone on with, through the stock client. */

let client: Client;
shareDeployedAgents((opened) => {
  client = opened.client;
});

const newThread = async () => (await client.threads.create()).thread_id;
const statusOf = async (threadId: string, runId: string) => (await client.runs.get(threadId, runId)).status;

describe('interrupts', () => {
  it('stop a run that succeeds and a thread that waits; an answer goes on', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'ask', { input: { question: 'Really?' } });
    await client.runs.join(threadId, run.run_id);
    expect(await statusOf(threadId, run.run_id)).toBe('success');
    const thread = await client.threads.get(threadId);
    expect(thread.status).toBe('interrupted');
    expect(Object.values(thread.interrupts).flat()).toMatchObject([{ value: { question: 'Really?' } }]);
    expect(await client.threads.getState(threadId)).toMatchObject({
      next: ['ask'],
      tasks: [{ name: 'ask', interrupts: [{ value: { question: 'Really?' } }] }],
    });
    const values = await client.runs.wait(threadId, 'ask', { command: { resume: 'yes' } });
    expect(values).toMatchObject({ result: 'answered: yes' });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle', interrupts: {} });
  });

  it('are told to those who wait, beside the state', async () => {
    const threadId = await newThread();
    const input = { question: 'Really?' };
    const told = { ...input, __interrupt__: [{ id: expect.any(String), value: input }] };
    expect(await client.runs.wait(threadId, 'ask', { input })).toEqual(told);
    const [run] = await client.runs.list(threadId);
    expect(await client.runs.join(threadId, run!.run_id)).toEqual(told);
    expect(await client.runs.wait(null, 'ask', { input })).toEqual(told);
    const long = { question: 'x'.repeat(2 * 1024 * 1024) };
    const asked = { ...long, __interrupt__: [{ id: expect.any(String), value: long }] };
    expect(await client.runs.wait(threadId, 'ask', { input: long })).toEqual(asked);
    const before = await client.runs.wait(threadId, 'steps', { input: { steps: 2 }, interruptBefore: '*' });
    expect(before).toMatchObject({ __interrupt__: [] });
    const after = await client.runs.wait(threadId, 'steps', { input: null });
    expect(after).not.toHaveProperty('__interrupt__');
    // Who joins a run that others have followed is not told what those wait for.
    expect(await client.runs.join(threadId, run!.run_id)).not.toHaveProperty('__interrupt__');
  });

  it('are answered by their ids where there are several; what has no answer waits on', async () => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'both', { input: { answers: [] } });
    const asked = async () => {
      const { status, interrupts } = await client.threads.get(threadId);
      return {
        status,
        ids: new Map(Object.values(interrupts).flatMap((list) => list.map(({ id, value }) => [value, id]))),
      };
    };
    const { status, ids } = await asked();
    expect([status, [...ids.keys()].sort()]).toEqual(['interrupted', ['left?', 'right?']]);
    await client.runs.wait(threadId, 'both', { command: { resume: { [ids.get('right?') as string]: 'no' } } });
    const left = await asked();
    expect([left.status, [...left.ids.keys()]]).toEqual(['interrupted', ['left?']]);
    await client.runs.wait(threadId, 'both', { command: { resume: { [ids.get('left?') as string]: 'yes' } } });
    expect(await client.threads.get(threadId)).toMatchObject({
      status: 'idle',
      interrupts: {},
      values: { answers: ['left: yes', 'right: no'] },
    });

    await client.runs.wait(threadId, 'both', { input: { answers: [] } });
    const again = (await asked()).ids;
    const resume = { [again.get('left?') as string]: 1, [again.get('right?') as string]: 2 };
    const { answers } = (await client.runs.wait(threadId, 'both', { command: { resume } })) as { answers: string[] };
    expect(answers.slice(2)).toEqual(['left: 1', 'right: 2']);
  });

  it('are asked for by node, without a question; null goes on', async () => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'steps', { input: { steps: 2 }, interruptBefore: '*' });
    expect(await client.threads.getState(threadId)).toMatchObject({ next: ['step'], values: { count: 0 } });
    await client.runs.wait(threadId, 'steps', { input: null, interruptAfter: ['step'] });
    expect(await client.threads.get(threadId)).toMatchObject({
      status: 'interrupted',
      interrupts: {},
      values: { count: 1 },
    });
    expect(await client.runs.wait(threadId, 'steps', { input: null })).toMatchObject({ count: 2 });
  });

  it('fork from a checkpoint; one that is not there is not found', async () => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'steps', { input: { steps: 2, text: 'a' } });
    const history = await client.threads.getHistory(threadId, { limit: 100 });
    const first = history.find((state) => (state.values as { count: number }).count === 1)!;
    const checkpointId = first.checkpoint.checkpoint_id!;
    const values = await client.runs.wait(threadId, 'steps', { input: { text: 'b' }, checkpointId });
    expect(values).toMatchObject({ log: ['a 1', 'b 2'] });
    await expect(client.runs.wait(threadId, 'steps', { checkpointId: randomUUID() })).rejects.toThrow('404');
  });
});
