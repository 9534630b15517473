import { type CloseEvent, WebSocket } from 'undici';
import { expect, it } from 'vitest';
import { startAgentServer } from './start-agent-server.ts';

it('closes WebSockets on shutdown and does not wait for them', async () => {
  const agents = await startAgentServer({ config: { drainTimeoutMs: 60_000 } });
  const { thread_id } = await agents.client.threads.create();
  const socket = new WebSocket(`${agents.url.replace('http', 'ws')}/threads/${thread_id}/stream/events`, {
    headers: { 'x-api-key': agents.owner.adminKey },
  });
  const nextEvent = (event: string) =>
    new Promise<Event>((resolve, reject) => {
      socket.addEventListener(event as 'open', resolve, { once: true });
      socket.addEventListener('error', reject, { once: true });
    });
  await nextEvent('open');
  const answered = nextEvent('message');
  socket.send(
    JSON.stringify({ id: 1, method: 'subscription.subscribe', params: { channels: ['values', 'lifecycle'] } }),
  );
  expect(JSON.parse(String(((await answered) as MessageEvent).data))).toMatchObject({ type: 'success', id: 1 });
  const closed = nextEvent('close');
  // Well below the drain timeout.
  await agents.close();
  expect((await closed) as CloseEvent).toMatchObject({ code: 1012 });
}, 50_000);
