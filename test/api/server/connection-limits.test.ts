import { connect } from 'node:net';
import { beforeAll, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { addOrganization, startApi } from '../start-api.ts';

/** Requests have a limit on their time, except uploads of sources. */
const api = forSuite(() => startApi({ config: { requestTimeoutMs: limitMs } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));
let port: number;
const limitMs = 500;

beforeAll(async () => {
  port = Number(new URL(await api.listen()).port);
});

/** Sends a body of 40 bytes, one every 50 ms, and returns the response. */
async function sendSlowly(method: string, path: string, type: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  let answer = '';
  socket.setEncoding('utf8').on('data', (text: string) => {
    answer += text;
  });
  const ended = new Promise<void>((resolve) => socket.on('close', () => resolve()).on('error', () => undefined));
  const head = [
    `Host: 127.0.0.1`,
    `x-api-key: ${acme.workspaceKeys[0]}`,
    `Content-Type: ${type}`,
    'Content-Length: 40',
  ];
  socket.write(`${method} ${path} HTTP/1.1\r\n${[...head, 'Connection: close'].join('\r\n')}\r\n\r\n`);
  let sent = 0;
  const timer = setInterval(() => {
    if (sent === 40 || !socket.writable) clearInterval(timer);
    else socket.write(' ');
    sent += 1;
  }, 50);
  await ended;
  clearInterval(timer);
  return answer;
}

it('a request that is not received in time gets 408', async () => {
  expect(await sendSlowly('POST', '/v2/deployments', 'application/json')).toMatch(
    new RegExp(`^HTTP/1.1 408 .*within ${limitMs} ms`, 's'),
  );
});

it('an upload of a source may take longer', async () => {
  const { body: made } = await api.ask(acme.workspaceKeys[0], 'POST', '/v2/deployments', {
    ...{ name: 'slow', source: 'internal_source', source_config: {}, source_revision_config: {}, secrets: [] },
  });
  const { body: link } = await api.ask(acme.workspaceKeys[0], 'POST', `/v2/deployments/${made.id}/upload-url`, {});
  const { pathname } = new URL(link.upload_url);
  expect(await sendSlowly('PUT', pathname, 'application/gzip')).toMatch(/^HTTP\/1.1 200 /);
});
