import { Client } from '@langchain/langgraph-sdk';
import { beforeAll, expect, it } from 'vitest';
import { WebhookReceiver } from '../../crash/webhook-receiver.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * The fields that `authenticate` adds to a user are for the graph, and may be tokens: here `plan`. Clients that
 * read runs and crons, and targets of webhooks, must not get them.
 */
const agentServer = forSuite(() => startAgentServer({ project: 'auth', config: { allowPrivateEndpoints: true } }));
let ada: Client;

const authorization = 'Bearer secret-ada';
const user = { identity: 'ada', display_name: 'ADA', is_authenticated: true, permissions: ['is:ada'] };

beforeAll(async () => {
  const { url: apiUrl } = agentServer;
  ada = new Client({ apiUrl, apiKey: null as never, defaultHeaders: { authorization } });
}, 120_000);

/** Returns the user in the arguments of a run. */
const findUser = (record: object) =>
  (record as { kwargs: { config: { configurable: { langgraph_auth_user: object } } } }).kwargs.config.configurable
    .langgraph_auth_user;

it('runs do not contain the fields of their user, but the graph gets them', async () => {
  const { thread_id: threadId } = await ada.threads.create();
  const created = await ada.runs.create(threadId, 'echo', { input: {} });
  expect(await ada.runs.join(threadId, created.run_id)).toMatchObject({ user: { user: { ...user, plan: 'free' } } });
  const read = await ada.runs.get(threadId, created.run_id);
  for (const run of [created, read, ...(await ada.runs.list(threadId))]) expect(findUser(run)).toEqual(user);
});

it('crons do not contain the fields of their user', async () => {
  const metadata = { readers: ['ada'] };
  const created = await ada.crons.create('echo', { schedule: '0 0 1 1 *', metadata, input: { a: 1 } });
  const { cron_id: cronId } = created as unknown as { cron_id: string };
  const response = await fetch(`${agentServer.url}/runs/crons/${cronId}`, { headers: { authorization } });
  const crons: unknown[] = [created, await ada.crons.update(cronId, { enabled: false }), await response.json()];
  for (const cron of [...crons, ...(await ada.crons.search({ select: ['payload'] }))])
    expect(cron).toMatchObject({ payload: { input: { a: 1 }, on_behalf_of: user } });
  expect(JSON.stringify(crons)).not.toContain('plan');
});

it('webhooks do not contain the fields of the user of their run', async () => {
  const receiver = await WebhookReceiver.open();
  receiver.answers = true;
  await ada.runs.create(null, 'echo', { input: {}, webhook: receiver.url });
  await expect.poll(() => receiver.received.length, { timeout: 20_000 }).toBe(1);
  expect(findUser(JSON.parse(receiver.received[0]!.body) as object)).toEqual(user);
});
