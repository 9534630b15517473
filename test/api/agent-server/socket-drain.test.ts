import { type CloseEvent, WebSocket } from 'undici';
import { expect, it } from 'vitest';
import { startAgentServer } from './start-agent-server.ts';

it('a server that stops says good-bye on WebSockets, and waits for none of them', async () => {
  const agents = await startAgentServer({ config: { drainTimeoutMs: 60_000 } });
  const { thread_id } = await agents.client.threads.create();
  const socket = new WebSocket(`${agents.url.replace('http', 'ws')}/threads/${thread_id}/stream/events`, {
    headers: { 'x-api-key': agents.owner.adminKey },
  });
  const heard = (event: string) =>
    new Promise<Event>((resolve, reject) => {
      socket.addEventListener(event as 'open', resolve, { once: true });
      socket.addEventListener('error', reject, { once: true });
    });
  await heard('open');
  const answered = heard('message');
  socket.send(
    JSON.stringify({ id: 1, method: 'subscription.subscribe', params: { channels: ['values', 'lifecycle'] } }),
  );
  expect(JSON.parse(String(((await answered) as MessageEvent).data))).toMatchObject({ type: 'success', id: 1 });
  const closed = heard('close');
  // Well within the time that a drain may take.
  await agents.close();
  expect((await closed) as CloseEvent).toMatchObject({ code: 1012 });
}, 50_000);
