import { afterAll, beforeAll, expect, it } from 'vitest';
import { leaseThread } from '../../../pipelines/agents/threads/update-thread-state.ts';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

/** Updates of the state of one thread at the same time, at two processes. */

let server: AgentServerUnderTest;
let other: AgentServerUnderTest;
beforeAll(async () => {
  server = await startAgentServer();
  other = await startAgentServer({ shareStoresWith: server });
}, 120_000);
afterAll(async () => {
  await other?.close();
  await server?.close();
});

it('are all applied, one after the other', async () => {
  const { thread_id: threadId } = await server.client.threads.create({ graphId: 'steps' });
  const texts = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
  const updates = texts.map((text, index) =>
    (index % 2 === 0 ? server : other).client.threads.updateState(threadId, {
      values: { log: [text] },
      asNode: 'step',
    }),
  );
  await Promise.all(updates);
  const { values } = await server.client.threads.getState<{ log: string[] }>(threadId);
  expect([...values.log].sort()).toEqual(texts);
  expect((await server.client.threads.get(threadId)).values).toEqual(values);
});

it('wait for the update of another process, but not for a run', async () => {
  const { thread_id: threadId } = await server.client.threads.create({ graphId: 'steps' });
  const { database } = server;
  const lease = await leaseThread(database, server.services.agents.deploymentId, threadId, 60_000);
  const update = server.client.threads.updateState(threadId, { values: { log: ['late'] }, asNode: 'step' });
  const refusal = expect(update).rejects.toThrow('409');
  await server.client.runs.create(threadId, 'steps', { input: { steps: 1 } });
  await refusal;
  await lease.release();
});
