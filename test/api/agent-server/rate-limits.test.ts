import { type MessageEvent, WebSocket } from 'undici';
import { expect, it, onTestFinished } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

const agents = forSuite(() => startAgentServer({ config: { rateLimitPerKey: 3 } }));

it('counts each command on a WebSocket for the rate limits; the socket stays open', async () => {
  // The WebSocket opens even if the thread does not exist.
  const url = `${agents.url.replace('http', 'ws')}/threads/${crypto.randomUUID()}/stream/events`;
  const socket = new WebSocket(url, { headers: { 'x-api-key': agents.owner.adminKey } });
  const answers: { id: number; type: string; message?: string }[] = [];
  let closed = false;
  socket.addEventListener('message', ({ data }: MessageEvent) => answers.push(JSON.parse(String(data))));
  socket.addEventListener('close', () => {
    closed = true;
  });
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve);
    socket.addEventListener('error', reject);
  });
  const subscribe = (id: number) =>
    socket.send(JSON.stringify({ id, method: 'subscription.subscribe', params: { channels: ['lifecycle'] } }));
  for (let id = 1; id <= 60; id += 1) subscribe(id);
  await expect.poll(() => answers.length, { timeout: 30_000 }).toBe(60);
  expect(answers.map(({ id }) => id)).toEqual(Array.from({ length: 60 }, (_, index) => index + 1));
  const refused = answers.filter(({ type }) => type === 'error');
  expect(refused.length).toBeGreaterThan(0);
  for (const each of refused) expect(each).toMatchObject({ message: expect.stringContaining('More than 3 requests') });
  let id = 60;
  await expect
    .poll(
      () => {
        id += 1;
        subscribe(id);
        return answers.at(-1)?.type;
      },
      { timeout: 10_000, interval: 1_100 },
    )
    .toBe('success');
  expect(closed).toBe(false);
  socket.close();
});

it('counts requests to routes of the custom app that require authentication', async () => {
  const guarded = await startAgentServer({
    project: 'guarded',
    shareStoresWith: agents,
    config: { rateLimitPerKey: 3 },
  });
  onTestFinished(() => guarded.close());
  const headers = { authorization: 'Bearer secret-anna' };
  const answers = await Promise.all(Array.from({ length: 20 }, () => fetch(`${guarded.url}/whoami`, { headers })));
  const refused = answers.filter(({ status }) => status === 429);
  expect([answers.some(({ ok }) => ok), refused.length > 0]).toEqual([true, true]);
  expect(Number(refused[0]?.headers.get('retry-after'))).toBeGreaterThan(0);
});
