import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

let server: AgentServerUnderTest;
beforeAll(async () => {
  server = await startAgentServer();
});
afterAll(() => server?.close());

/** As another process writes it, of which this one hears nothing. */
const elsewhere = (set: string, assistantId: string) =>
  server.database.execute(
    `UPDATE agents.assistants SET ${set}, updated_at = clock_timestamp() WHERE assistant_id = $1`,
    [assistantId],
  );

async function assistantOf(tag: string) {
  const { assistant_id: id } = await server.client.assistants.create({ graphId: 'burst', config: { tags: [tag] } });
  return id;
}

/** What the run was made with. */
async function runOf(assistantId: string, more: object = {}) {
  const { thread_id: threadId } = await server.client.threads.create();
  const run = await server.client.runs.create(threadId, assistantId, { input: { n: 1 }, ...more });
  const stored = (await server.client.runs.get(threadId, run.run_id)) as unknown as {
    kwargs: { config: { tags: string[] } };
  };
  return { threadId, tags: stored.kwargs.config.tags };
}

describe('a run is of its assistant as that is now', () => {
  it('also where another process has changed it', async () => {
    const id = await assistantOf('first');
    expect((await runOf(id)).tags).toEqual(['first']);
    expect((await runOf(id)).tags).toEqual(['first']);
    await elsewhere(`config = '{"tags":["second"]}'`, id);
    expect((await runOf(id)).tags).toEqual(['second']);
    await server.client.assistants.update(id, { config: { tags: ['third'] } });
    expect((await runOf(id)).tags).toEqual(['third']);
  });

  it('also where what was wrong with it is right', async () => {
    const id = await assistantOf('first');
    await runOf(id);
    const stops = { command: { goto: 'step' } };
    await expect(runOf(id, stops)).rejects.toThrow(/GRAPH_NODE_UNKNOWN|has no node/);
    await elsewhere(`graph_id = 'steps'`, id);
    expect((await runOf(id, stops)).tags).toEqual(['first']);
  });

  it('not where it was deleted', async () => {
    const id = await assistantOf('first');
    await runOf(id);
    await server.database.execute('DELETE FROM agents.assistants WHERE assistant_id = $1', [id]);
    const { thread_id: threadId } = await server.client.threads.create();
    const answer = await server.ask('POST', `/threads/${threadId}/runs`, { assistant_id: id });
    expect(answer.status).toBe(404);
    expect(await server.client.runs.list(threadId)).toEqual([]);
  });

  it('of an id that is none: nothing is remembered', async () => {
    const { thread_id: threadId } = await server.client.threads.create();
    for (let again = 0; again < 2; again += 1) {
      const answer = await server.ask('POST', `/threads/${threadId}/runs`, { assistant_id: randomUUID() });
      expect(answer.status).toBe(404);
    }
  });

  it('where it is large it is read each time', async () => {
    const id = await assistantOf('x'.repeat(20_000));
    expect((await runOf(id)).tags[0]).toHaveLength(20_000);
    await elsewhere(`config = '{"tags":["small"]}'`, id);
    expect((await runOf(id)).tags).toEqual(['small']);
    expect((await runOf(id)).tags).toEqual(['small']);
  });
});
