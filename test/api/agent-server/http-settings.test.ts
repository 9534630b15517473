import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Client } from '@langchain/langgraph-sdk';
import { describe, expect, it } from 'vitest';
import { inspectAgentPort } from '../../../api/command-line/inspect-port.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * `http` of langgraph.json on a running server. `graphs-file.test.ts` tests rejected settings, `http-app.test.ts` the
 * app.
 */

const agent = forSuite(() => startAgentServer({ project: 'web', config: { serveMetrics: true } }));

describe('http.cors', () => {
  const shared = { 'access-control-allow-credentials': 'true', vary: 'origin' };
  const fetchHeaders = async (method: string, headers: Record<string, string>) => {
    const answer = await fetch(`${agent.url}/ok`, { method, headers });
    const responseHeaders: Record<string, string> = Object.fromEntries(answer.headers);
    return { ...responseHeaders, status: answer.status };
  };

  it.each(['https://a.example', 'https://b.team.example'])('allows pages of %s', async (origin) => {
    const headers = await fetchHeaders('GET', { origin });
    expect(headers).toMatchObject({ ...shared, status: 200, 'access-control-allow-origin': origin });
    const exposedHeaders =
      'content-location, location, x-pagination-total, x-pagination-next, x-request-id, x-ignored-fields, x-page';
    expect(headers).toHaveProperty('access-control-expose-headers', exposedHeaders);
  });

  it.each([
    'https://other.example',
    'https://b.team.example.evil.example',
    'https://evil.example/?https://b.team.example',
    `https://${'b'.repeat(500)}.team.example`,
    // A backtracking pattern takes years.
    `https://${'b'.repeat(80)}`,
  ])('does not allow pages of %s', async (origin) => {
    expect(await fetchHeaders('GET', { origin })).not.toHaveProperty('access-control-allow-origin');
  });

  it('responds to CORS preflights', async () => {
    const preflight = { 'access-control-request-method': 'PUT', 'access-control-request-headers': 'x-other' };
    expect(await fetchHeaders('OPTIONS', { origin: 'https://a.example', ...preflight })).toMatchObject({
      ...shared,
      status: 204,
      'access-control-allow-methods': 'GET, POST',
      'access-control-allow-headers': 'x-api-key, content-type',
      'access-control-max-age': '60',
    });
  });
});

it('runlake doctor recognises the agent server whatever is disabled, and no other server', async () => {
  const found = async (at: string) => {
    const { hostname: agentsHost, port } = new URL(at);
    const checks: unknown[] = [];
    const config = { ...agent.services.agents.config, agentsHost, agentsPort: Number(port) };
    await inspectAgentPort(config, (up, part) => checks.push([part, up]));
    return checks;
  };
  expect((await fetch(`${agent.url}/openapi.json`)).status).toBe(404);
  expect(await found(agent.url)).toEqual([['Agent server', true]]);
  const other = createServer((_, answer) => answer.end('{"ok":true}')).listen(0, '127.0.0.1');
  await once(other, 'listening');
  expect(await found(`http://127.0.0.1:${(other.address() as AddressInfo).port}`)).toEqual([['Agent port', false]]);
  other.close();
});

it('http.configurable_headers selects the headers that a run gets', async () => {
  const { url, owner } = agent;
  const defaultHeaders = {
    'x-team-name': 'blue',
    'x-team-secret': 's',
    'x-other': 'o',
    'accept-language': 'de',
    cookie: 'c=1',
  };
  const client = new Client({ apiUrl: url, apiKey: owner.adminKey, defaultHeaders, callerOptions: { maxRetries: 0 } });
  const { heard } = (await client.runs.wait(null, 'heard', { input: { heard: null } })) as { heard: object };
  expect(heard).toEqual({ 'x-team-name': 'blue', 'accept-language': 'de' });
});

it('http.disable_meta disables the description, and keeps the health checks', async () => {
  for (const path of ['/info', '/metrics', '/docs', '/openapi.json']) {
    expect([path, (await agent.ask('GET', path)).status]).toEqual([path, 404]);
  }
  expect((await fetch(`${agent.url}/ok`)).status).toBe(200);
});
