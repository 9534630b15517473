import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

const server = forSuite(() => startAgentServer());

/** Updates the assistant as another process does: this process gets no notification. */
const updateAssistantInDatabase = (set: string, assistantId: string) =>
  server.database.execute(
    `UPDATE agents.assistants SET ${set}, updated_at = clock_timestamp() WHERE assistant_id = $1`,
    [assistantId],
  );

async function createAssistant(tag: string) {
  const { assistant_id: id } = await server.client.assistants.create({ graphId: 'burst', config: { tags: [tag] } });
  return id;
}

/** Returns the configuration that the run was created with. */
async function readRunConfig(assistantId: string, more: object = {}) {
  const { thread_id: threadId } = await server.client.threads.create();
  const run = await server.client.runs.create(threadId, assistantId, { input: { n: 1 }, ...more });
  const stored = (await server.client.runs.get(threadId, run.run_id)) as unknown as {
    kwargs: { config: { tags: string[] } };
  };
  return { threadId, tags: stored.kwargs.config.tags };
}

describe('a run uses the current version of its assistant', () => {
  it('also after another process changed it', async () => {
    const id = await createAssistant('first');
    expect((await readRunConfig(id)).tags).toEqual(['first']);
    expect((await readRunConfig(id)).tags).toEqual(['first']);
    await updateAssistantInDatabase(`config = '{"tags":["second"]}'`, id);
    expect((await readRunConfig(id)).tags).toEqual(['second']);
    await server.client.assistants.update(id, { config: { tags: ['third'] } });
    expect((await readRunConfig(id)).tags).toEqual(['third']);
  });

  it('also after its error was corrected', async () => {
    const id = await createAssistant('first');
    await readRunConfig(id);
    const stops = { command: { goto: 'step' } };
    await expect(readRunConfig(id, stops)).rejects.toThrow(/GRAPH_NODE_UNKNOWN|has no node/);
    await updateAssistantInDatabase(`graph_id = 'steps'`, id);
    expect((await readRunConfig(id, stops)).tags).toEqual(['first']);
  });

  it('unless it was deleted', async () => {
    const id = await createAssistant('first');
    await readRunConfig(id);
    await server.database.execute('DELETE FROM agents.assistants WHERE assistant_id = $1', [id]);
    const { thread_id: threadId } = await server.client.threads.create();
    const answer = await server.ask('POST', `/threads/${threadId}/runs`, { assistant_id: id });
    expect(answer.status).toBe(404);
    expect(await server.client.runs.list(threadId)).toEqual([]);
  });

  it('does not cache an unknown id', async () => {
    const { thread_id: threadId } = await server.client.threads.create();
    for (let again = 0; again < 2; again += 1) {
      const answer = await server.ask('POST', `/threads/${threadId}/runs`, { assistant_id: randomUUID() });
      expect(answer.status).toBe(404);
    }
  });

  it('reads a large assistant each time', async () => {
    const id = await createAssistant('x'.repeat(20_000));
    expect((await readRunConfig(id)).tags[0]).toHaveLength(20_000);
    await updateAssistantInDatabase(`config = '{"tags":["small"]}'`, id);
    expect((await readRunConfig(id)).tags).toEqual(['small']);
    expect((await readRunConfig(id)).tags).toEqual(['small']);
  });
});
