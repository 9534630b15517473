/** Deployments have the origin of the main API. What they must not do to it, and to each other, in browsers. */
import type { RequestListener } from 'node:http';
import { afterEach, expect, it } from 'vitest';
import { openProxy, startReplica } from './open-proxy.ts';

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each.close();
});

async function read(headers: Record<string, string | string[]>, body = ''): Promise<Headers> {
  const respond: RequestListener = (_request, response) => response.writeHead(200, headers).end(body);
  const replica = await startReplica(respond);
  opened.push(replica);
  const proxy = await openProxy([replica.url]);
  opened.push(proxy);
  const response = await fetch(`${proxy.url}/x`);
  await response.arrayBuffer();
  return response.headers;
}

it('they set cookies for their own path only', async () => {
  const cookies = ['a=1; Path=/; Domain=example.com; HttpOnly', 'b=2', 'c=3; path=/app; Secure'];
  expect((await read({ 'set-cookie': cookies })).getSetCookie()).toEqual([
    'a=1; HttpOnly; Path=/deployments/trips/',
    'b=2; Path=/deployments/trips/',
    'c=3; Secure; Path=/deployments/trips/app',
  ]);
});

it('they set no cookie that a browser would send in place of the session', async () => {
  const cookies = [
    'runlake_session=1',
    ' runlake_session =2',
    '=runlake_session=3',
    'runlake_oidc=4',
    'runlake_session_3000=5',
    'runlake_other=6',
  ];
  expect((await read({ 'set-cookie': cookies })).getSetCookie()).toEqual(['runlake_other=6; Path=/deployments/trips/']);
  expect((await read({ 'set-cookie': 'runlake_session=1' })).getSetCookie()).toEqual([]);
});

it('they send no header that concerns the whole origin', async () => {
  const wide = { 'service-worker-allowed': '/', 'clear-site-data': '"*"', 'strict-transport-security': 'max-age=1' };
  const headers = await read({ ...wide, nel: '{}', 'x-kept': '1' });
  expect(headers.get('x-kept')).toBe('1');
  for (const name of [...Object.keys(wide), 'nel']) expect(headers.has(name), name).toBe(false);
});

it.each([
  ['a page', { 'content-type': 'text/html' }],
  ['an image with scripts', { 'content-type': 'image/svg+xml' }],
  ['a response without a type', {}],
  ['a page with a policy', { 'content-type': 'text/html', 'content-security-policy': "img-src 'none'" }],
])('%s has an origin of its own in the browser', async (_what, sent) => {
  const policies = (await read(sent, '<script></script>')).get('content-security-policy');
  const sandbox = policies?.split(', ').find((policy) => policy.startsWith('sandbox '));
  expect(sandbox).toContain('allow-scripts');
  expect(sandbox).not.toContain('allow-same-origin');
  if ('content-security-policy' in sent) expect(policies).toContain("img-src 'none'");
});
