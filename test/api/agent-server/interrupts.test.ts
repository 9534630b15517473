import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { shareDeployedAgents } from './start-agents-as-deployed.ts';

/** Runs that stop and are resumed, through the stock client. */

const { server, client } = shareDeployedAgents();

const newThread = async () => (await client.threads.create()).thread_id;
const statusOf = async (threadId: string, runId: string) => (await client.runs.get(threadId, runId)).status;

describe('interrupts', () => {
  it('end the run with success and leave the thread interrupted; a reply resumes it', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'ask', { input: { question: 'Really?' } });
    await client.runs.join(threadId, run.run_id);
    expect(await statusOf(threadId, run.run_id)).toBe('success');
    const thread = await client.threads.get(threadId);
    expect(thread.status).toBe('interrupted');
    expect(Object.values(thread.interrupts).flat()).toMatchObject([{ value: { question: 'Really?' } }]);
    expect(await client.threads.getState(threadId)).toMatchObject({
      next: ['ask'],
      tasks: [{ name: 'ask', interrupts: [{ value: { question: 'Really?' } }], result: null }],
    });
    const values = await client.runs.wait(threadId, 'ask', { command: { resume: 'yes' } });
    expect(values).toMatchObject({ result: 'answered: yes' });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle', interrupts: {} });
  });

  it.each([false, 0, ''])('are resumed with %j', async (resume) => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'ask', { input: { question: 'Really?' } });
    const values = await client.runs.wait(threadId, 'ask', { command: { resume } });
    expect(values).toMatchObject({ result: `answered: ${resume}` });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle', interrupts: {} });
  });

  it('are returned with the state to a client that waits', async () => {
    const threadId = await newThread();
    const input = { question: 'Really?' };
    const interruptedValues = { ...input, __interrupt__: [{ id: expect.any(String), value: input }] };
    expect(await client.runs.wait(threadId, 'ask', { input })).toEqual(interruptedValues);
    const [run] = await client.runs.list(threadId);
    expect(await client.runs.join(threadId, run!.run_id)).toEqual(interruptedValues);
    expect(await client.runs.wait(null, 'ask', { input })).toEqual(interruptedValues);
    const long = { question: 'x'.repeat(2 * 1024 * 1024) };
    const longInterruptedValues = { ...long, __interrupt__: [{ id: expect.any(String), value: long }] };
    expect(await client.runs.wait(threadId, 'ask', { input: long })).toEqual(longInterruptedValues);
    const before = await client.runs.wait(threadId, 'steps', { input: { steps: 2 }, interruptBefore: '*' });
    expect(before).toMatchObject({ __interrupt__: [] });
    const after = await client.runs.wait(threadId, 'steps', { input: null });
    expect(after).not.toHaveProperty('__interrupt__');
    // A client that joins a run later does not get its interrupts.
    expect(await client.runs.join(threadId, run!.run_id)).not.toHaveProperty('__interrupt__');
  });

  it('are resumed by id if there are several; those without a reply stay open', async () => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'both', { input: { answers: [] } });
    const fetchOpenInterrupts = async () => {
      const { status, interrupts } = await client.threads.get(threadId);
      return {
        status,
        ids: new Map(Object.values(interrupts).flatMap((list) => list.map(({ id, value }) => [value, id]))),
      };
    };
    const { status, ids } = await fetchOpenInterrupts();
    expect([status, [...ids.keys()].sort()]).toEqual(['interrupted', ['left?', 'right?']]);
    await client.runs.wait(threadId, 'both', { command: { resume: { [ids.get('right?') as string]: 'no' } } });
    const left = await fetchOpenInterrupts();
    expect([left.status, [...left.ids.keys()]]).toEqual(['interrupted', ['left?']]);
    await client.runs.wait(threadId, 'both', { command: { resume: { [ids.get('left?') as string]: 'yes' } } });
    expect(await client.threads.get(threadId)).toMatchObject({
      status: 'idle',
      interrupts: {},
      values: { answers: ['left: yes', 'right: no'] },
    });

    await client.runs.wait(threadId, 'both', { input: { answers: [] } });
    const again = (await fetchOpenInterrupts()).ids;
    const resume = { [again.get('left?') as string]: 1, [again.get('right?') as string]: 2 };
    const { answers } = (await client.runs.wait(threadId, 'both', { command: { resume } })) as { answers: string[] };
    expect(answers.slice(2)).toEqual(['left: 1', 'right: 2']);
  });

  it.each(['input.respond', 'run.start'])('with text that Postgres cannot store are resumed by %s', async (method) => {
    const { thread_id: threadId } = await client.threads.create({ graphId: 'ask' });
    await client.runs.wait(threadId, 'ask', {
      input: { question: 'cut emoji \ud83d, NUL \u0000, backslashes \\u0000 \\' },
    });
    const [interrupt] = Object.values((await client.threads.get(threadId)).interrupts).flat();
    const params =
      method === 'run.start' ? { assistant_id: 'ask', input: 'yes' } : { interrupt_id: interrupt?.id, response: 'yes' };
    const answer = await server.ask('POST', `/threads/${threadId}/commands`, { id: 1, method, params });
    expect(await answer.json()).toMatchObject({ type: 'success' });
    const [run] = await client.runs.list(threadId);
    expect(await client.runs.join(threadId, run!.run_id)).toMatchObject({ result: 'answered: yes' });
  });

  it('before a node have no question; null resumes them', async () => {
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

  it('fork from a checkpoint, which must exist', async () => {
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
