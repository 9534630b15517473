import type { FastifyRequest } from 'fastify';
import { expect, it } from 'vitest';
import { buildPublicUrl } from '../../../api/server/public-base.ts';

const asked = (host: string | undefined, protocol = 'http') =>
  ({ headers: { host }, protocol, socket: { localAddress: '::1', localPort: 1984 } }) as unknown as FastifyRequest;

it.each([
  ['the host of the request', 'localhost:1984', undefined, 'http://localhost:1984/api/v1/x'],
  ['a name', 'runlake.example', undefined, 'http://runlake.example/api/v1/x'],
  ['an IPv6 address', '[2001:db8::1]:80', undefined, 'http://[2001:db8::1]:80/api/v1/x'],
  ['its own address if there is no host', undefined, undefined, 'http://[::1]:1984/api/v1/x'],
  ['its own address if the host is invalid', 'a/b@c" <script>', undefined, 'http://[::1]:1984/api/v1/x'],
  ['the configured address', 'localhost', 'https://runlake.example/', 'https://runlake.example/api/v1/x'],
  [
    'the configured address with a path',
    'localhost',
    'https://example.com/lake/api/v1',
    'https://example.com/lake/api/v1/x',
  ],
])('links begin with %s', (_, host, publicUrl, url) => {
  expect(buildPublicUrl('/x', asked(host), { publicUrl })).toBe(url);
});
