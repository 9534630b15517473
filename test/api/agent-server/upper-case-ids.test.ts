import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Ids in paths are UUIDs in upper or lower case. */

const server = forSuite(() => startAgentServer());

async function createThread() {
  const { thread_id: threadId } = await server.client.threads.create();
  await server.client.runs.wait(threadId, 'ask', { input: { question: 'Sure?' } });
  return { threadId, upper: threadId.toUpperCase() };
}

it('a state update reaches the stream of the thread', async () => {
  const { thread_id: threadId } = await server.client.threads.create({ graphId: 'ask' });
  const stop = new AbortController();
  const options = { streamMode: ['state_update' as never], lastEventId: '-', signal: stop.signal };
  const events = server.client.threads.joinStream(threadId, options);
  const update = (answer: string, id: string) =>
    server.ask('POST', `/threads/${id}/state`, { values: { answer }, as_node: 'ask' });
  expect((await update('first', threadId.toUpperCase())).status).toBe(200);
  expect((await update('second', threadId)).status).toBe(200);
  const answers: unknown[] = [];
  for await (const { data } of events) {
    const { state } = data as unknown as { state?: { values: { answer?: string } } };
    if (state?.values.answer !== undefined) answers.push(state.values.answer);
    if (answers.at(-1) === 'second') break;
  }
  stop.abort();
  expect(answers).toEqual(['first', 'second']);
});

it('a copy has the checkpoints of its thread', async () => {
  const { upper } = await createThread();
  const copied = await server.ask('POST', `/threads/${upper}/copy`);
  const { thread_id: copy } = (await copied.json()) as { thread_id: string };
  expect((await server.client.threads.getState(copy)).next).toEqual(['ask']);
});

it('a checkpoint is found', async () => {
  const { threadId, upper } = await createThread();
  const { checkpoint } = await server.client.threads.getState(threadId);
  const answer = await server.ask('GET', `/threads/${upper}/state/${checkpoint.checkpoint_id}`);
  expect(await answer.json()).toMatchObject({ next: ['ask'], checkpoint });
  const run = { assistant_id: 'ask', input: { question: '?' }, checkpoint_id: checkpoint.checkpoint_id };
  expect((await server.ask('POST', `/threads/${upper}/runs`, run)).status).toBe(200);
});
