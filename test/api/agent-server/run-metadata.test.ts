/**
 * Configuration that a run gets in addition to that of its request: user id, and metadata of thread and assistant,
 * merged as the reference server does.
 */

import { describe, expect, it } from 'vitest';
import { computeSystemAssistantId } from '../../../pipelines/agents/assistants/assistant.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() => startAgentServer({ project: 'inside' }));
const client = createProxyTo(() => agent.client);
const graphId = 'configured';
const systemId = computeSystemAssistantId(graphId);

interface ReceivedConfig {
  readonly metadata: Record<string, unknown>;
  readonly configurable: Record<string, unknown>;
}

async function run(threadId: string | null, assistantId: string, payload: object = {}): Promise<ReceivedConfig> {
  return (await client.runs.wait(threadId as string, assistantId, {
    input: { text: 'a' },
    ...payload,
  })) as unknown as ReceivedConfig;
}

const userId = (user_id: unknown) => ({ config: { configurable: { user_id } } });

describe('the user id that a graph sees', () => {
  it('is taken from the client, then the thread, then the assistant, then the caller', async () => {
    const { assistant_id: assistant } = await client.assistants.create({ graphId, ...userId('of the assistant') });
    const { thread_id: thread } = await client.threads.create();
    const seen = async (...args: Parameters<typeof run>) => (await run(...args)).configurable;
    const caller = {
      langgraph_auth_user_id: agent.owner.userId,
      langgraph_auth_user: { identity: agent.owner.userId },
    };
    expect(await seen(thread, graphId)).toMatchObject({ ...caller, user_id: agent.owner.userId });
    expect(await seen(null, assistant)).toMatchObject({ ...caller, user_id: 'of the assistant' });
    expect(await seen(null, assistant, userId('ada'))).toMatchObject({ ...caller, user_id: 'ada' });
    expect(await seen(thread, graphId, userId('ada'))).toMatchObject({ ...caller, user_id: 'ada' });
    expect(await seen(thread, assistant)).toMatchObject({ ...caller, user_id: 'ada' });
    expect(await seen(thread, graphId, userId(null))).toMatchObject({ ...caller, user_id: 'ada' });
    expect(await seen(thread, graphId, userId('ben'))).toMatchObject({ ...caller, user_id: 'ben' });
    expect((await client.threads.get(thread)).config).toMatchObject({ configurable: { user_id: 'ben' } });
  });

  it('never changes the user that a run belongs to', async () => {
    const forged = { langgraph_auth_user_id: 'ben', langgraph_auth_user: { identity: 'ben' } };
    const { configurable } = await run(null, graphId, { config: { configurable: forged } });
    expect(configurable).toMatchObject({
      langgraph_auth_user_id: agent.owner.userId,
      langgraph_auth_user: { identity: agent.owner.userId },
    });
  });
});

describe('metadata', () => {
  it('of assistant, thread and run are merged for the run, its nodes and its checkpoints', async () => {
    const { assistant_id: assistant } = await client.assistants.create({
      graphId,
      metadata: { of: 'assistant', assistant: 1 },
      config: { metadata: { configured: true } } as never,
    });
    const { thread_id: thread } = await client.threads.create({ metadata: { of: 'thread', thread: 1 } });
    const seen = await run(thread, assistant, {
      metadata: { of: 'run', run: { deep: [1] } },
      config: { configurable: { tenant: 'blue' } },
    });
    const ids = { graph_id: graphId, assistant_id: assistant };
    const merged = { of: 'run', assistant: 1, thread: 1, run: { deep: [1] }, ...ids };
    expect(seen.metadata).toMatchObject({ ...merged, configured: true });
    const [made] = await client.runs.list(thread);
    expect(made).toMatchObject({ metadata: merged, kwargs: { config: { metadata: { ...merged, configured: true } } } });
    const state = await client.threads.getState(thread);
    const found = {
      ...merged,
      configured: true,
      tenant: 'blue',
      run_id: made!.run_id,
      thread_id: thread,
      source: 'loop',
    };
    expect(state.metadata).toMatchObject({ ...found, langgraph_auth_user_id: agent.owner.userId });
    // Auth handlers may put credentials there.
    expect(state.metadata).not.toHaveProperty('langgraph_auth_user');
    expect((await client.threads.get(thread)).metadata).toEqual({ of: 'thread', thread: 1, ...ids });
  });

  it('contain created_by if the assistant is a system assistant', async () => {
    const { metadata } = await run(null, graphId);
    expect(metadata).toMatchObject({ created_by: 'system', graph_id: graphId, assistant_id: systemId });
  });

  it('of a run are copied to the thread that is created for it and kept', async () => {
    const thread = crypto.randomUUID();
    await run(thread, graphId, { metadata: { topic: 'cats' }, ifNotExists: 'create' });
    const about = { topic: 'cats', graph_id: graphId, assistant_id: systemId };
    expect((await client.threads.get(thread)).metadata).toEqual(about);
    expect(await client.threads.search({ metadata: { topic: 'cats' } })).toHaveLength(1);
  });

  it('and configurable values filter the history of a thread', async () => {
    const { thread_id: thread } = await client.threads.create();
    await run(thread, graphId, { metadata: { turn: 1 }, ...userId('ada') });
    await run(thread, graphId, { metadata: { turn: 2 }, ...userId('ben') });
    const all = await client.threads.getHistory(thread);
    const history = async (metadata: Record<string, unknown>) =>
      (await client.threads.getHistory(thread, { metadata } as never)).map(({ metadata }) => metadata);
    expect(await history({ turn: 1 })).toHaveLength(all.length / 2);
    for (const metadata of await history({ turn: 2 })) expect(metadata).toMatchObject({ turn: 2, user_id: 'ben' });
    expect(await history({ user_id: 'ben', turn: 2 })).toHaveLength(all.length / 2);
    expect(await history({ user_id: 'ben', turn: 1 })).toEqual([]);
    expect(await history({ graph_id: graphId })).toHaveLength(all.length);
  });

  it('cannot forge the owner or the step of a checkpoint', async () => {
    const metadata = { run_id: 'forged', thread_id: 'forged', run_attempt: 7, step: 99, source: 'fork', parents: 1 };
    const { thread_id: thread } = await client.threads.create();
    await run(thread, graphId, { metadata, durability: 'exit' });
    const [made] = await client.runs.list(thread);
    const state = await client.threads.getState(thread);
    const own = { run_id: made!.run_id, thread_id: thread, run_attempt: 1, step: 1, source: 'loop', parents: {} };
    expect(state.metadata).toMatchObject(own);
  });
});
