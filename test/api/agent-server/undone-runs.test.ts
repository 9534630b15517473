import type { Config, Thread } from '@langchain/langgraph-sdk';
import { describe, expect, it } from 'vitest';
import { shareDeployedAgents } from './start-agents-as-deployed.ts';

/** The metadata and the config of a thread after runs that were rolled back or never started. */

const { server, client } = shareDeployedAgents();

const slow = { input: { n: 2, pauseMs: 60_000 } };
const endsWith = (threadId: string, runId: string) =>
  expect.poll(async () => (await server.ask('GET', `/threads/${threadId}/runs/${runId}`)).status).toBe(404);

/** Creates a thread with state of the graph `steps`. */
async function prepareThread() {
  const { thread_id: threadId } = await client.threads.create();
  await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'kept' } });
  const { metadata } = await client.threads.get(threadId);
  expect(metadata).toMatchObject({ graph_id: 'steps', assistant_id: expect.any(String) });
  return { threadId, metadata };
}

async function startSlowRun(threadId: string, options: { config?: Config } = {}) {
  const { run_id: runId } = await client.runs.create(threadId, 'burst', { ...slow, ...options });
  await expect.poll(async () => (await client.runs.get(threadId, runId)).status, { timeout: 10_000 }).toBe('running');
  return runId;
}

const expectStateOfSteps = async (threadId: string) =>
  expect((await client.threads.getState(threadId)).values).toMatchObject({ log: ['kept 1'] });

describe('graph and assistant of a thread are as before', () => {
  it('after a cancelled run that is rolled back', async () => {
    const { threadId, metadata } = await prepareThread();
    const runId = await startSlowRun(threadId);
    expect((await client.threads.get(threadId)).metadata).toMatchObject({ graph_id: 'burst' });
    await client.runs.cancel(threadId, runId, true, 'rollback');
    await endsWith(threadId, runId);
    expect((await client.threads.get(threadId)).metadata).toEqual(metadata);
    await expectStateOfSteps(threadId);
  });

  it('after runs that the strategy rollback replaces by a run that is rolled back as well', async () => {
    const { threadId, metadata } = await prepareThread();
    const first = await startSlowRun(threadId);
    const strategy = { multitaskStrategy: 'rollback', ...slow } as const;
    await client.runs.create(threadId, 'echo', { input: { messages: [] } });
    // The run does not end before it is cancelled.
    const { run_id: last } = await client.runs.create(threadId, 'parent', { ...strategy, afterSeconds: 600 });
    await endsWith(threadId, first);
    expect((await client.threads.get(threadId)).metadata).toMatchObject({ graph_id: 'parent' });
    await client.runs.cancel(threadId, last, true, 'rollback').catch(() => undefined);
    expect((await client.threads.get(threadId)).metadata).toEqual(metadata);
    await expectStateOfSteps(threadId);
  });

  it.each(['interrupt', 'rollback', 'delete'] as const)('after pending runs that end with %s', async (how) => {
    const { threadId, metadata } = await prepareThread();
    const later = { afterSeconds: 600 };
    const runIds = [];
    for (const graph of ['burst', 'echo', 'echo', 'parent'])
      runIds.push((await client.runs.create(threadId, graph, later)).run_id);
    if (how === 'delete') for (const runId of runIds) await client.runs.delete(threadId, runId);
    else await client.runs.cancelMany({ threadId, runIds, action: how });
    expect((await client.threads.get(threadId)).metadata).toEqual(metadata);
    await expectStateOfSteps(threadId);
  });

  it('after pending runs of a deleted assistant', async () => {
    const { threadId, metadata } = await prepareThread();
    const { assistant_id: id } = await client.assistants.create({ graphId: 'burst' });
    await client.runs.create(threadId, id, { afterSeconds: 600 });
    await client.assistants.delete(id);
    expect((await client.threads.get(threadId)).metadata).toEqual(metadata);
  });

  it('unless a run was interrupted after its start, or a client has changed them', async () => {
    const { threadId } = await prepareThread();
    const runId = await startSlowRun(threadId);
    await client.runs.cancel(threadId, runId, true);
    expect((await client.threads.get(threadId)).metadata).toMatchObject({ graph_id: 'burst' });
    const { run_id: pending } = await client.runs.create(threadId, 'echo', { afterSeconds: 600 });
    await client.threads.update(threadId, { metadata: { graph_id: 'mine' } });
    await client.runs.delete(threadId, pending);
    expect((await client.threads.get(threadId)).metadata).toMatchObject({ graph_id: 'mine' });
  });
});

describe('the config of a thread is as before', () => {
  const kept = { configurable: { of: 'kept' } };
  const changed = { configurable: { of: 'changed' }, tags: ['changed'] };

  /** Creates a thread with the config of a finished run. */
  async function prepareConfiguredThread() {
    const { thread_id: threadId } = await client.threads.create();
    await client.runs.wait(threadId, 'steps', { input: { steps: 1 }, config: kept });
    const { config } = await readThread(threadId);
    expect(config).toMatchObject(kept);
    return { threadId, config };
  }

  const readThread = async (threadId: string) => (await client.threads.get(threadId)) as Thread & { config: unknown };
  const expectConfig = async (threadId: string, config: unknown) =>
    expect((await readThread(threadId)).config).toEqual(config);

  it('after a cancelled run that is rolled back', async () => {
    const { threadId, config } = await prepareConfiguredThread();
    const runId = await startSlowRun(threadId, { config: changed });
    await expectConfig(threadId, changed);
    await client.runs.cancel(threadId, runId, true, 'rollback');
    await endsWith(threadId, runId);
    await expectConfig(threadId, config);
  });

  it.each([
    ['no config', undefined],
    ['its own config', { configurable: { of: 'last' } }],
  ])('after a run that the strategy rollback replaces by one with %s', async (_, last) => {
    const { threadId, config } = await prepareConfiguredThread();
    const first = await startSlowRun(threadId, { config: changed });
    await client.runs.create(threadId, 'echo', { config: { configurable: { of: 'pending' } } });
    const run = await client.runs.create(threadId, 'steps', {
      ...{ input: { steps: 1 }, multitaskStrategy: 'rollback', afterSeconds: 600 },
      ...(last && { config: last }),
    });
    await endsWith(threadId, first);
    await expectConfig(threadId, last ?? config);
    await client.runs.cancel(threadId, run.run_id, true, 'rollback').catch(() => undefined);
    await expectConfig(threadId, config);
  });

  it('after pending runs that are deleted, or whose assistant is deleted', async () => {
    const { threadId, config } = await prepareConfiguredThread();
    const { assistant_id: id } = await client.assistants.create({ graphId: 'burst', config: changed });
    const { run_id: runId } = await client.runs.create(threadId, 'echo', { config: changed, afterSeconds: 600 });
    await client.runs.create(threadId, id, { afterSeconds: 600 });
    await client.runs.delete(threadId, runId);
    await expectConfig(threadId, changed);
    await client.assistants.delete(id);
    await expectConfig(threadId, config);
  });

  it('unless a run was interrupted after its start', async () => {
    const { threadId } = await prepareConfiguredThread();
    const runId = await startSlowRun(threadId, { config: changed });
    await client.runs.cancel(threadId, runId, true);
    await expectConfig(threadId, changed);
  });
});
