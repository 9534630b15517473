import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildAgentApi } from '../../../api/agent-server/agent-api.ts';
import type { AgentServices } from '../../../api/agent-server/agent-operation.ts';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { createAuthenticator } from '../../../pipelines/tenants/authenticate.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { addKey, addOrganization, type OrganizationUnderTest } from '../start-api.ts';

/** Checks before every handler of the agent server: key, workspace, permission, origin. */

let server: FastifyInstance;
let owner: OrganizationUnderTest;
let other: OrganizationUnderTest;
let unprivilegedKey: string;
let close: () => Promise<void>;
const stores = forSuite(() => freshStores());
beforeAll(async () => {
  const { database } = stores;
  owner = await addOrganization(database, 'owner');
  other = await addOrganization(database, 'other');
  unprivilegedKey = await addKey({
    database,
    organizationId: owner.id,
    userId: owner.userId,
    permissions: ['runs:read'],
  });
  const authenticator = createAuthenticator({ database, logger });
  const { config } = loadConfig({ RUNLAKE_AGENTS_CORS_ORIGINS: 'https://a.example, https://b.example' });
  const agents = { deploymentId: owner.id, config, database, graphs: {} };
  const services = { authenticator, agents } as unknown as AgentServices;
  const form = buildAgentApi(config, owner.workspaceIds[0]);
  server = await buildServer({ config, services, logger, operations: agentOperations, form });
  close = async () => {
    await server.close();
    await authenticator.close();
  };
});
afterAll(() => close());

const get = (url: string, headers: Record<string, string>) => server.inject({ method: 'GET', url, headers });
const count = (headers: Record<string, string>) =>
  server.inject({ method: 'POST', url: '/assistants/count', headers, payload: {} });

it('admits only keys with access to the workspace of the deployment', async () => {
  const [first, second] = owner.workspaceIds;
  const keyOptions = { database: stores.database, organizationId: owner.id, userId: owner.userId };
  const admittedHeaders: Record<string, string>[] = [
    { 'x-api-key': owner.adminKey },
    { 'x-api-key': owner.adminKey, 'x-tenant-id': first },
    { 'x-api-key': owner.workspaceKeys[0] },
    // Organisation-wide keys and keys of several workspaces, whatever their default workspace is.
    { 'x-api-key': await addKey(keyOptions) },
    { 'x-api-key': await addKey({ ...keyOptions, defaultWorkspaceId: second }) },
    { 'x-api-key': await addKey({ ...keyOptions, workspaceIds: [first, second] }) },
  ];
  for (const headers of admittedHeaders) {
    const answer = await count(headers);
    expect([answer.statusCode, answer.json()]).toEqual([200, 0]);
  }
  const refused = async (headers: Record<string, string>) => {
    const { statusCode, body } = await count(headers);
    return [statusCode, JSON.parse(body).code];
  };
  expect(await refused({})).toEqual([401, 'API_KEY_MISSING']);
  expect(await refused({ 'x-api-key': randomUUID() })).toEqual([401, 'API_KEY_INVALID']);
  expect(await refused({ 'x-api-key': other.adminKey })).toEqual([403, 'DEPLOYMENT_FORBIDDEN']);
  expect(await refused({ 'x-api-key': owner.workspaceKeys[1] })).toEqual([403, 'DEPLOYMENT_FORBIDDEN']);
  expect(await refused({ 'x-api-key': owner.workspaceKeys[1], 'x-tenant-id': second })).toEqual([
    403,
    'DEPLOYMENT_FORBIDDEN',
  ]);
  expect(await refused({ 'x-api-key': owner.workspaceKeys[1], 'x-tenant-id': first })).toEqual([
    403,
    'WORKSPACE_FORBIDDEN',
  ]);
  // The request names a workspace that does not contain this deployment.
  expect(await refused({ 'x-api-key': owner.adminKey, 'x-tenant-id': second })).toEqual([403, 'DEPLOYMENT_FORBIDDEN']);
  expect(await refused({ 'x-api-key': unprivilegedKey })).toEqual([403, 'FORBIDDEN']);
});

it('serves /info without a key', async () => {
  for (const headers of [{}, { 'x-api-key': other.adminKey }] as Record<string, string>[]) {
    const answer = await get('/info', headers);
    expect(answer.json()).toMatchObject({ context: 'js', flags: { assistants: true } });
    expect(answer.statusCode).toBe(200);
  }
});

it('has no path prefix', async () => {
  expect((await get('/api/v1/info', { 'x-api-key': owner.adminKey })).statusCode).toBe(404);
});

it('allows pages of the configured origins to read responses and errors, and rejects other origins', async () => {
  const origin = 'https://b.example';
  const allowed = await count({ origin });
  expect(allowed.statusCode).toBe(401);
  expect(allowed.headers).toMatchObject({ 'access-control-allow-origin': origin, vary: 'origin' });
  expect(allowed.headers['access-control-expose-headers']).toContain('content-location');
  const foreignResponse = await count({ origin: 'https://c.example', 'x-api-key': owner.adminKey });
  expect(foreignResponse.headers).not.toHaveProperty('access-control-allow-origin');

  const ask = (headers: Record<string, string>) => server.inject({ method: 'OPTIONS', url: '/info', headers });
  const preflightHeaders = {
    'access-control-request-method': 'GET',
    'access-control-request-headers': 'x-api-key,content-type',
  };
  const answer = await ask({ origin, ...preflightHeaders });
  expect(answer.statusCode).toBe(204);
  expect(answer.headers['access-control-allow-headers']).toBe('x-api-key,content-type');
  const refused = await ask({ origin: 'https://c.example', ...preflightHeaders });
  expect([refused.statusCode, refused.json()]).toEqual([
    403,
    expect.objectContaining({ code: 'ORIGIN_NOT_ALLOWED', detail: expect.stringContaining("'https://c.example'") }),
  ]);
  expect(refused.body).toContain('RUNLAKE_AGENTS_CORS_ORIGINS');
  expect((await ask({ origin: 'http://localhost:3000', ...preflightHeaders })).statusCode).toBe(403);
});

describe('without configured origins', () => {
  const preflight = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'x-api-key' };
  let loopback: FastifyInstance;
  beforeAll(async () => {
    const { config } = loadConfig({});
    const services = { agents: {} } as unknown as AgentServices;
    const form = buildAgentApi(config, owner.workspaceIds[0]);
    loopback = await buildServer({ config, services, logger, operations: agentOperations, form });
  });
  afterAll(() => loopback.close());
  const ask = (origin: string) =>
    loopback.inject({ method: 'OPTIONS', url: '/threads', headers: { origin, ...preflight } });

  it.each([
    'http://localhost:3000',
    'https://localhost',
    'http://127.0.0.1:5173',
    'http://127.1.2.3',
    'http://[::1]:8080',
  ])('allows pages of %s', async (origin) => {
    const { statusCode, headers } = await ask(origin);
    expect([statusCode, headers]).toEqual([
      204,
      expect.objectContaining({ 'access-control-allow-origin': origin, 'access-control-allow-headers': 'x-api-key' }),
    ]);
    expect(headers).not.toHaveProperty('access-control-allow-credentials');
  });

  it.each([
    ...['null', 'http://localhost.example.com', 'http://127.0.0.1.example.com', 'http://128.0.0.1', 'file://localhost'],
    ...['http://localhost:3000/path', 'http://user@localhost', 'http://10.0.0.1', 'http://[::2]'],
  ])('rejects pages of %s and names the setting', async (origin) => {
    const { statusCode, headers, body } = await ask(origin);
    expect([statusCode, JSON.parse(body).code]).toEqual([403, 'ORIGIN_NOT_ALLOWED']);
    expect(body).toContain('RUNLAKE_AGENTS_CORS_ORIGINS');
    expect(headers).not.toHaveProperty('access-control-allow-origin');
  });
});
