import { beforeAll, expect, it, onTestFinished, vi } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * The state of a thread can be tens of megabytes. Operations that do not return it do not read it into the process that
 * serves requests, because parsing it blocks the event loop.
 */

const server = forSuite(() => startAgentServer());
let threadId: string;
beforeAll(async () => {
  ({ thread_id: threadId } = await server.client.threads.create());
  await server.client.runs.wait(threadId, 'ask', { input: { question: 'Sure?' } });
}, 120_000);

const body = { assistant_id: 'ask', input: { question: 'Sure?' }, after_seconds: 3_600, multitask_strategy: 'enqueue' };
const command = (method: string, params: object) => ({ id: 1, method, params });
it.each<[string, string, object | undefined]>([
  ['GET', '/state', undefined],
  ['POST', '/history', {}],
  ['GET', '/runs', undefined],
  ['POST', '/commands', command('state.get', {})],
  ['POST', '/commands', command('agent.getTree', {})],
  ['POST', '/commands', command('state.fork', { checkpoint_id: '1ef00000-0000-6000-8000-000000000000' })],
  ['POST', '/commands', command('input.respond', { interrupt_id: 'none', response: 1 })],
  ['POST', '/state', { values: { answer: 'yes' }, as_node: 'ask' }],
  ['POST', '/runs', body],
])('%s %s reads no state: %j', async (method, path, body) => {
  const query = vi.spyOn(server.services.agents.database, 'query');
  onTestFinished(() => query.mockRestore());
  const answer = await server.ask(method, `/threads/${threadId}${path}`, body);
  expect(answer.status).toBeLessThan(500);
  await answer.text();
  const rows = (await Promise.all(query.mock.results.map(({ value }) => value))).flat();
  expect(rows.filter((row) => 'thread_id' in row).length).toBeGreaterThan(0);
  expect(rows.filter((row) => 'values' in row || 'interrupts' in row)).toEqual([]);
});
