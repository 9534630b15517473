import { randomUUID } from 'node:crypto';
import { expect, it, onTestFinished, vi } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { deferred } from '../../infra/deferred.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Replies to interrupts over the v2 protocol, with timing that the test controls. */

const agents = forSuite(() => startAgentServer());

it('uses a run as the reply to an interrupt if the interrupted run ends between two reads of the thread', async () => {
  const { database } = agents.services.agents;
  const query = database.query.bind(database);
  const wasRead = deferred();
  const hasEnded = deferred();
  const querySpy = vi.spyOn(database, 'query').mockImplementation(async (sql, ...rest) => {
    if (sql.includes('agents.end_run(')) await wasRead.promise;
    const rows = await query<{ status?: string }>(sql, ...rest);
    if (sql.includes('agents.end_run(')) hasEnded.resolve();
    else if (sql.includes('FROM agents.threads') && rows[0]?.status === 'busy') {
      wasRead.resolve();
      await hasEnded.promise;
    }
    return rows as never;
  });
  onTestFinished(() => {
    wasRead.resolve();
    hasEnded.resolve();
    querySpy.mockRestore();
  });
  const thread = agents.client.threads.stream(randomUUID(), { assistantId: 'ask' });
  const asking = await thread.subscribe({ channels: ['input'] });
  await thread.run.start({ input: { question: 'Sure?' } });
  for await (const { method } of asking) if (method === 'input.requested') break;
  await thread.run.start({ input: 'yes' });
  querySpy.mockRestore();
  await expect
    .poll(async () => (await agents.client.threads.get(thread.threadId)).values, { timeout: 10_000 })
    .toMatchObject({ result: 'answered: yes' });
  await thread.close();
});
