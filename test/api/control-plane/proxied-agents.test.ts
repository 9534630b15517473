/** Agent servers behind the proxy of deployments, with the stock client. */
import { Client } from '@langchain/langgraph-sdk';
import { WebSocket } from 'undici';
import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from '../agent-server/start-agent-server.ts';
import { openProxy } from './open-proxy.ts';

const agents = forSuite(() => startAgentServer());
const proxy = forSuite(() => openProxy([agents.url]));
/** Paths of the requests that the client sent. */
const sentPaths: string[] = [];
const client = forSuite(
  () =>
    new Client({
      apiUrl: proxy.url,
      apiKey: agents.owner.adminKey,
      callerOptions: { maxRetries: 0 },
      onRequest: ({ pathname }, init) => {
        sentPaths.push(pathname);
        return init;
      },
    }),
);

const ask = (path: string, headers: Record<string, string> = {}) =>
  fetch(proxy.url + path, { headers: { 'x-api-key': agents.owner.adminKey, ...headers } });

it('streams a run; the client learns its id', async () => {
  const { thread_id: threadId } = await client.threads.create();
  let created: { run_id: string; thread_id?: string } | undefined;
  const events: string[] = [];
  const stream = client.runs.stream(threadId, 'burst', {
    input: { n: 50 },
    streamMode: 'custom',
    onRunCreated: (run) => {
      created = run;
    },
  });
  for await (const { event } of stream) events.push(event);
  expect(events.filter((event) => event === 'custom')).toHaveLength(50);
  const [run] = await client.runs.list(threadId);
  expect(created).toEqual({ run_id: run?.run_id, thread_id: threadId });
});

it('continues a broken stream at the path that the replica names', async () => {
  const { thread_id: threadId } = await client.threads.create();
  const seen: number[] = [];
  const stream = client.runs.stream(threadId, 'burst', {
    input: { n: 40, pauseMs: 10 },
    streamMode: 'custom',
    streamResumable: true,
  });
  sentPaths.length = 0;
  for await (const { event, data } of stream) {
    if (event !== 'custom') continue;
    seen.push((data as { i: number }).i);
    if (seen.length === 3) proxy.server.server.closeAllConnections();
  }
  const [run] = await client.runs.list(threadId);
  const path = `/threads/${threadId}/runs/${run?.run_id}`;
  const prefix = '/deployments/trips';
  expect(sentPaths.slice(0, 2)).toEqual([`${prefix}/threads/${threadId}/runs/stream`, `${prefix}${path}/stream`]);
  expect(seen).toEqual(Array.from({ length: 40 }, (_, i) => i));
  const joined = await ask(`${path}/stream`);
  expect(joined.headers.get('location')).toBe(`${path}/stream`);
  expect(joined.headers.get('content-location')).toBe(`${prefix}${path}`);
  await joined.body?.cancel();
});

it('carries the WebSocket of the protocol', async () => {
  const { thread_id: threadId } = await client.threads.create();
  const socket = new WebSocket(`${proxy.url.replace('http', 'ws')}/threads/${threadId}/stream/events`, {
    headers: { 'x-api-key': agents.owner.adminKey },
  });
  const next = (event: string) =>
    new Promise<Event>((resolve, reject) => {
      socket.addEventListener(event as 'open', resolve, { once: true });
      socket.addEventListener('error', reject, { once: true });
    });
  await next('open');
  const answer = next('message');
  socket.send(JSON.stringify({ id: 1, method: 'subscription.subscribe', params: { channels: ['values'] } }));
  expect(JSON.parse(String(((await answer) as MessageEvent).data))).toMatchObject({ type: 'success', id: 1 });
  socket.close();
});

it('names itself in agent cards and in the API description', async () => {
  const card = (await (await ask('/.well-known/agent-card.json?assistant_id=echo')).json()) as { url: string };
  expect(card.url.startsWith(`${proxy.url}/a2a/`)).toBe(true);
  const description = (await (await ask('/openapi.json')).json()) as { servers: object };
  expect(description.servers).toEqual([{ url: '/deployments/trips' }]);
  const direct = (await (await fetch(`${agents.url}/openapi.json`)).json()) as object;
  expect(direct).not.toHaveProperty('servers');
});

it('serves the pages of the API description', async () => {
  const page = await ask('/docs');
  expect(page.status).toBe(200);
  const [, script = ''] = /src="(\S*swagger-ui-bundle\.js)"/.exec(await page.text()) ?? [];
  expect((await fetch(new URL(script, page.url))).status).toBe(200);
  const initializer = await fetch(new URL(script.replace('swagger-ui-bundle', 'swagger-initializer'), page.url));
  expect(await initializer.text()).toContain("resolveUrl('./json')");
  // The sandbox of the page gives it this origin.
  const description = await ask('/docs/json', { origin: 'null' });
  expect(description.headers.get('access-control-allow-origin')).toBe('*');
  expect(await description.json()).toMatchObject({ servers: [{ url: '/deployments/trips' }] });
});

it('leaves authentication to the replica', async () => {
  expect((await ask('/openapi.json', { 'x-api-key': 'wrong' })).status).toBe(200);
  expect((await ask('/threads/00000000-0000-4000-8000-000000000000', { 'x-api-key': 'wrong' })).status).toBe(401);
  expect((await fetch(`${proxy.url}/ok`)).status).toBe(200);
});
