import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() => startAgentServer());

it('clients of many runs that are cancelled before they start do not wait for each other', {
  timeout: 120_000,
}, async () => {
  const { client, database, owner } = agent;
  const count = 300;
  for (let made = 0; made < count; made += 50)
    await Promise.all(Array.from({ length: 50 }, () => client.runs.create(null, 'echo', { afterSeconds: 3_600 })));
  const { thread_id: threadId } = await client.threads.create();
  const { run_id: runId } = await client.runs.create(threadId, 'echo', { afterSeconds: 3_600 });
  const joined = client.runs.join(threadId, runId);
  await client.runs.cancelMany({ status: 'pending' });
  const cancelled = performance.now();
  await joined;
  const unpublished = async () =>
    (await database.query('SELECT FROM agents.runs WHERE deployment_id = $1 AND end_published = false', [owner.id]))
      .length;
  await expect.poll(unpublished, { timeout: 60_000 }).toBe(0);
  expect(performance.now() - cancelled).toBeLessThan(10_000);
});
