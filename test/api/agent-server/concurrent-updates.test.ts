import { v6 as uuidv6 } from 'uuid';
import { expect, it } from 'vitest';
import { buildThreadKey } from '../../../pipelines/agents/checkpoints/copy-checkpoints.ts';
import { leaseThread } from '../../../pipelines/agents/threads/update-thread-state.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Updates of the state of one thread at the same time, at two processes. */

const server = forSuite(() => startAgentServer());
const other = forSuite(() => startAgentServer({ shareStoresWith: server }));

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
  const { client, database } = server;
  const { deploymentId } = server.services.agents;
  const [threadId, unrelated] = await Promise.all(
    [1, 2].map(async () => (await client.threads.create({ graphId: 'steps' })).thread_id),
  );
  const settled: string[] = [];
  const update = async (id: string, text: string) => {
    await client.threads.updateState(id, { values: { log: [text] }, asNode: 'step' }).finally(() => settled.push(text));
  };
  /** Begins an update while another process has the lease. */
  const updateUnderLease = async (text: string) => {
    const lease = await leaseThread(database, deploymentId, threadId!, 60_000);
    const updating = update(threadId!, text);
    updating.catch(() => undefined);
    // The update has tried to get the lease when a later one is complete.
    await update(unrelated!, `after ${text}`);
    expect(settled).not.toContain(text);
    return { lease, updating };
  };
  const { lease, updating } = await updateUnderLease('waiting');
  await lease.release();
  await updating;
  expect((await client.threads.getState(threadId!)).values).toMatchObject({ log: ['waiting'] });

  const busy = await updateUnderLease('refused');
  await client.runs.create(threadId!, 'steps', { input: { steps: 1 } });
  await expect(busy.updating).rejects.toThrow('409');
  await busy.lease.release();
});

it('are not lost if the process that wrote the state before them has a clock that is ahead', async () => {
  const { client, database } = server;
  const { thread_id: threadId } = await client.threads.create({ graphId: 'steps' });
  /** Gives the newest checkpoint the id that it would have if the clock of its process were ahead. */
  const setClockAhead = async () => {
    const key = buildThreadKey(server.services.agents.deploymentId, threadId);
    const id = uuidv6({ msecs: Date.now() + 500 });
    const changed = await database.execute(
      `UPDATE agents.checkpoints SET checkpoint_id = $2, checkpoint = jsonb_set(checkpoint, '{id}', to_jsonb($2::text))
       WHERE thread_id = $1 AND checkpoint_id = (SELECT max(checkpoint_id) FROM agents.checkpoints WHERE thread_id = $1)`,
      [key, id],
    );
    expect(changed).toBe(1);
  };
  await client.threads.updateState(threadId, { values: { log: ['a'] }, asNode: '__start__' });
  await setClockAhead();
  await other.client.threads.updateState(threadId, { values: { log: ['b'] }, asNode: '__start__' });
  expect((await client.threads.getState(threadId)).values).toMatchObject({ log: ['a', 'b'] });
  await setClockAhead();
  const values = await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'hop' } });
  expect(values).toMatchObject({ log: ['a', 'b', 'hop 1'] });
  expect((await client.threads.getState(threadId)).values).toEqual(values);
});
