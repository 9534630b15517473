import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { json } from 'node:stream/consumers';
import { afterAll, expect, test } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * Headers that Java's HTTP client sends with each request until it knows the protocol. `curl --http2` also sends them.
 */
const upgrade = { connection: 'Upgrade, HTTP2-Settings', upgrade: 'h2c', 'http2-settings': 'AAEAAEAAAAIAAAAB' };

const server = forSuite(() => startAgentServer());
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
afterAll(async () => {
  agent.destroy();
});

async function ask(method: string, path: string, body?: object) {
  const headers = { ...upgrade, 'x-api-key': server.owner.adminKey, 'content-type': 'application/json' };
  const asked = request(server.url + path, { method, headers, agent });
  asked.end(body && JSON.stringify(body));
  const [answer] = (await once(asked, 'response')) as [IncomingMessage];
  return { status: answer.statusCode, body: await json(answer) };
}

test('serves requests that offer HTTP/2 over HTTP/1.1, with their bodies, on the same connection', async () => {
  expect(await ask('GET', '/ok')).toEqual({ status: 200, body: { ok: true } });
  const input = { messages: [{ role: 'user', content: 'hi' }] };
  expect(await ask('POST', '/runs/wait', { assistant_id: 'echo', input })).toMatchObject({
    status: 200,
    body: { messages: [{ content: 'hi' }, { content: 'echo: hi' }] },
  });
  expect(await ask('GET', '/info')).toMatchObject({ status: 200 });
});
