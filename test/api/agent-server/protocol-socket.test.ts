import { randomUUID } from 'node:crypto';
import { WebSocket } from 'undici';
import { expect, it, vi } from 'vitest';
import { getBodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import { forSuite } from '../../for-suite.ts';
import { addOrganization } from '../start-api.ts';
import { startAgentServer } from './start-agent-server.ts';

/** A WebSocket of the v2 protocol, without the stock client. */

const agents = forSuite(() => startAgentServer());

/** Returns the received messages and how the socket closed. */
function open(key: string = agents.owner.adminKey, threadId: string = randomUUID()) {
  const url = `${agents.url.replace('http', 'ws')}/threads/${threadId}/stream/events`;
  const socket = new WebSocket(url, { headers: { 'x-api-key': key } });
  const seen: Record<string, unknown>[] = [];
  socket.addEventListener('message', ({ data }) => seen.push(JSON.parse(String(data))));
  const opened = new Promise<boolean>((resolve) => {
    socket.addEventListener('open', () => resolve(true));
    socket.addEventListener('error', () => resolve(false));
  });
  const closed = new Promise<number>((resolve) => socket.addEventListener('close', ({ code }) => resolve(code)));
  return { socket, seen, opened, closed };
}

it('accepts only authorised callers', async () => {
  const other = await addOrganization(agents.database, 'other');
  for (const key of ['rlk_wrong', other.adminKey]) expect(await open(key).opened).toBe(false);
});

it('responds to invalid messages with errors and stays open; a message that is too long closes it with a code', async () => {
  const { socket, seen, opened, closed } = open();
  expect(await opened).toBe(true);
  for (const text of ['rubbish', '', '[]', '{"id":1}']) socket.send(text);
  socket.send(new Uint8Array([1, 2, 3]));
  socket.send(JSON.stringify({ id: 9, method: 'subscription.unsubscribe', params: { subscription_id: 'no' } }));
  await vi.waitFor(() => expect(seen).toHaveLength(6), 10_000);
  expect(seen.map(({ type, id, error }) => [type, id, error])).toEqual([
    ...Array(3).fill(['error', null, 'invalid_argument']),
    ['error', 1, 'invalid_argument'],
    ['error', null, 'invalid_argument'],
    ['error', 9, 'no_such_subscription'],
  ]);
  socket.send(JSON.stringify({ id: 10, method: 'run.start', params: { text: 'x'.repeat(1024 * 1024) } }));
  expect(await closed).toBe(1009);
});

it('counts messages against the memory for request bodies', async () => {
  const { socket, seen, opened, closed } = open();
  await opened;
  const share = getBodyBudget(agents.services.agents.config).open(agents.owner.id, () => undefined);
  share.take(agents.services.agents.config.maxCollectingBytes - 1_000);
  for (let id = 1; id <= 3; id++) {
    socket.send(
      JSON.stringify({ id, method: 'subscription.unsubscribe', params: { subscription_id: 'x'.repeat(500) } }),
    );
    await vi.waitFor(() => expect(seen).toHaveLength(id), 10_000);
  }
  socket.send(JSON.stringify({ id: 4, method: 'x'.repeat(1_000) }));
  expect(await closed).toBe(1013);
  share.close();
});

it('receives the events of all subscriptions in one order', async () => {
  const threadId = randomUUID();
  const n = 2_000;
  const params = { assistant_id: 'burst', input: { n, bytes: 20_000 } };
  const started = await agents.ask('POST', `/threads/${threadId}/commands`, { id: 1, method: 'run.start', params });
  const body = (await started.json()) as { result: { run_id: string } };
  await agents.client.runs.join(threadId, body.result.run_id);
  const { socket, seen, opened } = open(undefined, threadId);
  await opened;
  for (const [id, channels] of [['custom'], ['lifecycle'], ['values', 'lifecycle']].entries()) {
    socket.send(JSON.stringify({ id, method: 'subscription.subscribe', params: { channels } }));
  }
  const isCompleted = ({ method, params }: Record<string, unknown>) =>
    method === 'lifecycle' && JSON.stringify(params).includes('"completed"');
  await vi.waitFor(() => expect(seen.some(isCompleted)).toBe(true), 60_000);
  const before = seen.slice(0, seen.findIndex(isCompleted)).filter(({ method }) => method === 'custom');
  const ids = before.map(({ event_id }) => event_id);
  expect([ids.length, new Set(ids).size]).toEqual([n, n]);
  socket.close();
});

it('limits its subscriptions, and ends them when it closes', async () => {
  const { socket, seen, opened, closed } = open();
  await opened;
  const request = { method: 'subscription.subscribe', params: { channels: ['values'] } };
  for (let id = 1; id <= 101; id++) {
    socket.send(JSON.stringify({ id, ...request }));
    if (id === 60 || id === 101) await vi.waitFor(() => expect(seen).toHaveLength(id), 20_000);
  }
  expect(seen.filter(({ type }) => type === 'success')).toHaveLength(100);
  expect(seen.at(-1)).toMatchObject({ type: 'error', id: 101, error: 'invalid_argument' });
  socket.close();
  expect(await closed).toBe(1005);
});
