import type { LookupAddress, LookupAllOptions } from 'node:dns';
import { createServer, get, type Server } from 'node:http';
import { get as getSecurely } from 'node:https';
import { hostname } from 'node:os';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type GuardedAgents, openGuardedAgents } from '../../../infra/network/guarded-agents.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';

let server: Server;
let port: number;
let agents: GuardedAgents | undefined;
/** Number of requests that the server received. */
let requests = 0;

beforeAll(async () => {
  server = createServer((_request, response) => {
    requests++;
    response.end('here');
  });
  port = await listenOnLoopback(server);
});
afterAll(() => server.close());
afterEach(() => {
  agents?.close();
  requests = 0;
});

/** Returns a lookup that simulates a DNS server under the control of an attacker. */
const resolveTo = (...addresses: string[]) =>
  ((_host: string, _options: LookupAllOptions, callback: (error: null, found: LookupAddress[]) => void) =>
    callback(
      null,
      addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    )) as unknown as NonNullable<Parameters<typeof openGuardedAgents>[0]['lookup']>;

function open(allowPrivate: boolean, lookup?: ReturnType<typeof resolveTo>): GuardedAgents {
  agents = openGuardedAgents({
    allowPrivate,
    maxConnections: 2,
    refuse: (host, { about }) => new Error(`refused: ${host} is ${about}`),
    ...(lookup && { lookup }),
  });
  return agents;
}

function ask(url: string, { http, https }: GuardedAgents): Promise<string> {
  return new Promise((resolve, reject) => {
    const secure = url.startsWith('https:');
    const request = (secure ? getSecurely : get)(url, { agent: secure ? https : http }, (response) => {
      response.resume().once('end', () => resolve(`status ${response.statusCode}`));
    });
    request.once('error', ({ message }) => resolve(message));
    request.setTimeout(5_000, () => reject(new Error('silent')));
  });
}

const at = (host: string, scheme = 'http') => `${scheme}://${host}:${port}/`;

describe('a guarded connection', () => {
  it.each([
    '127.0.0.1',
    // Notations that URL parsers accept, and obfuscated notations.
    '127.1',
    '0x7f000001',
    '2130706433',
    '0177.0.0.1',
    '[::1]',
    '[::ffff:127.0.0.1]',
    'localhost',
    '10.1.2.3',
    '169.254.169.254',
    '0.0.0.0',
  ])('is refused for %s', async (host) => {
    for (const scheme of ['http', 'https']) {
      expect(await ask(at(host, scheme), open(false))).toMatch(/^refused: /);
    }
    expect(requests).toBe(0);
  });

  it('is allowed to loopback and private addresses if configured, but never to link-local ones', async () => {
    for (const host of ['127.0.0.1', 'localhost']) expect(await ask(at(host), open(true))).toBe('status 200');
    for (const host of ['169.254.169.254', '0.0.0.0', '[fe80::1]', '224.0.0.1']) {
      expect(await ask(at(host), open(true))).toMatch(/^refused: /);
    }
  });

  it.each([
    ['one private address', ['127.0.0.1']],
    ['a private address among public ones', ['8.8.8.8', '127.0.0.1', '2606:4700:4700::1111']],
    ['a metadata address', ['169.254.169.254']],
    ['a mapped address', ['::ffff:127.0.0.1']],
  ])('is refused for a name with %s', async (_what, addresses) => {
    expect(await ask(at('store.example'), open(false, resolveTo(...addresses)))).toMatch(
      /^refused: store\.example is /,
    );
    expect(requests).toBe(0);
  });

  it('connects to the address that was checked, even if the name resolves to another one later', async () => {
    let turn = 0;
    const turning = resolveTo();
    const lookup = ((host: string, options: LookupAllOptions, callback: never) =>
      (turn++ === 0 ? resolveTo('127.0.0.1') : resolveTo('169.254.169.254'))(
        host,
        options,
        callback,
      )) as typeof turning;
    const opened = open(true, lookup);
    expect(await ask(at('store.example'), opened)).toBe('status 200');
    expect(turn).toBe(1);
    // A kept-alive connection needs no lookup; for a new connection, the address is checked again.
    const both = await Promise.all([ask(at('store.example'), opened), ask(at('store.example'), opened)]);
    expect(both).toEqual(['status 200', expect.stringMatching(/^refused: /)]);
  });

  it('reports that a name does not exist', async () => {
    expect(await ask(at('no-such-name.invalid'), open(false))).toMatch(/ENOTFOUND|EAI_AGAIN/);
  });

  it('does not treat the host name of this machine as public', async () => {
    expect(await ask(at(hostname()), open(false))).toMatch(/^refused: |ENOTFOUND|EAI_AGAIN/);
  });
});
