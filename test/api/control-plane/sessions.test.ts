/**
 * Sessions of the dashboard at the addresses of deployments: what they can do, and what an attacker can not. Agent
 * servers and their graph code are real; `captured` is a deployment whose replica only records what it gets.
 */
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createDeploymentProxy } from '../../../api/control-plane/proxy.ts';
import { operations } from '../../../api/main/operations.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import { createTicketSigner, ticketHeader } from '../../../api/server/session-ticket.ts';
import { hashToken } from '../../../pipelines/tenants/sign-in-session.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { type AgentServerUnderTest, readInBackground, startAgentServer } from '../agent-server/start-agent-server.ts';
import { addKey, addOrganization } from '../start-api.ts';
import { type Replica, startReplica } from './open-proxy.ts';

const first = forSuite(() => startAgentServer());
/** The servers of the deployments, by slug. All but `foreign` are in the first workspace of the owner. */
const agents: Record<string, AgentServerUnderTest> = {};
const deploymentIds: Record<string, string> = {};
let captured: Replica;
let main: FastifyInstance;
let url: string;

/** Starts a main API with its proxy; `driver` as the setting of deployments. */
async function startMain(driver: 'process' | 'docker'): Promise<FastifyInstance> {
  const services = { ...first.answering, config: { ...first.answering.config, deploymentsDriver: driver } };
  const finder = {
    find: async (slug: string) => ({ deploymentId: '', url: agents[slug]?.url ?? captured.url }),
  };
  const server = await buildServer({
    config: services.config,
    services,
    logger,
    operations,
    mounted: createDeploymentProxy(finder, { sessions: services }),
  });
  await server.listen({ host: '127.0.0.1', port: 0 });
  return server;
}
const addressOf = (server: FastifyInstance) => `http://127.0.0.1:${(server.server.address() as AddressInfo).port}`;

beforeAll(async () => {
  const { owner } = first;
  captured = await startReplica((_request, response) => response.end('{}'));
  main = await startMain('process');
  url = addressOf(main);
  for (const [slug, project] of [
    ['trips', 'basic'],
    ['app', 'app'],
    ['own-auth', 'auth'],
    ['captured', undefined],
  ] as const) {
    const created = await fetch(`${url}/v2/deployments`, {
      method: 'POST',
      headers: { 'x-api-key': owner.workspaceKeys[0], 'content-type': 'application/json' },
      body: JSON.stringify({
        name: slug,
        source: 'internal_source',
        source_config: {},
        source_revision_config: {},
        secrets: [],
      }),
    });
    const { id } = (await created.json()) as { id: string };
    deploymentIds[slug] = id;
    if (project)
      agents[slug] = await startAgentServer({ project, shareStoresWith: first, config: { agentsDeployment: id } });
  }
}, 120_000);
afterAll(async () => {
  await main?.close();
  await captured?.close();
  for (const server of Object.values(agents)) await server.close();
});

type Headers = Record<string, string>;
async function signIn(key: string, origin = url): Promise<Headers & { cookie: string; 'x-csrf-token': string }> {
  const answer = await fetch(`${origin}/api/v1/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ api_key: key }),
  });
  const [cookie = ''] = String(answer.headers.get('set-cookie')).split(';');
  return { cookie, 'x-csrf-token': ((await answer.json()) as { csrf_token: string }).csrf_token };
}

function send(path: string, headers: Headers, body?: object, method = body ? 'POST' : 'GET'): Promise<Response> {
  return fetch(path.startsWith('http') ? path : `${url}/deployments/${path}`, {
    method,
    headers: { ...headers, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
  });
}
async function refusal(answer: Promise<Response>): Promise<unknown[]> {
  const { status, ...rest } = await answer.then(async (each) => ({
    status: each.status,
    code: ((await each.json()) as { code?: string }).code,
  }));
  return [status, rest.code];
}

/** Returns a fresh ticket of a session for the deployment `captured`. */
async function captureTicket(session: Headers): Promise<string> {
  await send('captured/threads', session);
  return String(captured.requests.at(-1)?.headers[ticketHeader]);
}

describe('a session', () => {
  it('runs a graph and reads its threads', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    const { thread_id: id } = (await (await send('trips/threads', session, {})).json()) as { thread_id: string };
    const run = await send(`trips/threads/${id}/runs/wait`, session, {
      assistant_id: 'echo',
      input: { messages: [{ role: 'user', content: 'hello' }] },
    });
    expect([run.status, await run.text()]).toEqual([200, expect.stringContaining('echo: hello')]);
    expect(await (await send(`trips/threads/${id}/state`, session)).text()).toContain('echo: hello');
  });

  it('has the permissions of its key', async () => {
    const { owner, database } = first;
    const readOnly = await addKey({ database, organizationId: owner.id, userId: owner.userId, readOnly: true });
    const session = await signIn(readOnly);
    expect((await send('trips/assistants/search', session, {})).status).toBe(200);
    expect(await refusal(send('trips/threads', session, {}))).toEqual([403, 'FORBIDDEN']);
    const keyOf = (permissions: string[]) =>
      addKey({ database, organizationId: owner.id, userId: owner.userId, permissions });
    const blind = await signIn(await keyOf(['runs:read']));
    expect(await refusal(send('trips/threads', blind, {}))).toEqual([403, 'FORBIDDEN']);
  });

  it('ends an open stream when it ends', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    const input = { n: 10_000, pauseMs: 20 };
    const stream = await send('trips/runs/stream', session, { assistant_id: 'burst', input, stream_mode: 'custom' });
    const seen = readInBackground(stream);
    await expect.poll(() => seen.text, { timeout: 10_000 }).toContain('"i":3');
    expect((await send(`${url}/api/v1/session`, session, undefined, 'DELETE')).status).toBe(204);
    await expect.poll(() => seen.ended, { timeout: 10_000 }).toBe(true);
    expect(seen.text).toContain('SESSION_INVALID');
  });

  it('never reaches graph code, nor does anything that stands for it', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    const seen = await (await send('app/headers', { ...session, 'x-own': '1' })).json();
    expect(seen).toHaveProperty('x-own', '1');
    for (const name of ['cookie', 'x-csrf-token', ticketHeader]) expect(seen).not.toHaveProperty(name);
    await send('captured/threads', { ...session, cookie: `own=1; runlake_oidc=sealed; ${session.cookie}` });
    const { headers } = captured.requests.at(-1)!;
    expect(headers.cookie).toBe('own=1');
    const sent = JSON.stringify(headers);
    for (const secret of [session.cookie.split('=')[1] ?? '', session['x-csrf-token']])
      expect(sent).not.toContain(secret);
  });

  it('is not used beside a key or other credentials', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    for (const own of [{ 'x-api-key': 'wrong' }, { authorization: 'Bearer wrong' }]) {
      expect(await refusal(send('trips/threads', { ...session, ...own }, {}))).toEqual([401, 'API_KEY_INVALID']);
      await send('captured/threads', { ...session, ...own });
      expect(captured.requests.at(-1)?.headers).not.toHaveProperty(ticketHeader);
    }
  });

  it('does not replace the authentication of a project', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    expect((await send('own-auth/threads', session, {})).status).toBe(401);
    const own = { ...session, authorization: 'Bearer secret-ada' };
    expect((await send('own-auth/threads', own, {})).status).toBe(200);
  });

  it('has no access to images, which could not verify a ticket', async () => {
    const docker = await startMain('docker');
    onTestFinished(() => docker.close());
    const origin = addressOf(docker);
    await send(`${origin}/deployments/captured/threads`, await signIn(first.owner.workspaceKeys[0], origin));
    for (const name of [ticketHeader, 'cookie', 'x-csrf-token'])
      expect(captured.requests.at(-1)?.headers).not.toHaveProperty(name);
  });
});

describe('an attacker', () => {
  it.each(['GET', 'HEAD', 'PATCH', 'DELETE'])('cannot act with a link, image or form: %s', async (method) => {
    const { cookie } = await signIn(first.owner.workspaceKeys[0]);
    expect((await send(`trips/threads/${randomUUID()}`, { cookie }, undefined, method)).status).toBe(401);
    const guessed = await send(`trips/threads/${randomUUID()}`, { cookie, 'x-csrf-token': 'x' }, undefined, method);
    expect(guessed.status).toBe(403);
  });

  it.each(['cross-site', 'same-site', 'none'])('cannot use a page elsewhere: %s', async (site) => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    const foreign = { ...session, 'sec-fetch-site': site };
    expect(await refusal(send('trips/threads', foreign, {}))).toEqual([403, 'CSRF_TOKEN_REQUIRED']);
    expect((await send('trips/threads', { ...session, 'sec-fetch-site': 'same-origin' }, {})).status).toBe(200);
  });

  it('cannot cross workspaces', async () => {
    const stranger = await addOrganization(first.database, 'stranger');
    for (const key of [first.owner.workspaceKeys[1], stranger.adminKey, stranger.workspaceKeys[0]])
      expect(await refusal(send('trips/threads', await signIn(key), {}))).toEqual([403, 'DEPLOYMENT_FORBIDDEN']);
    const owner = await signIn(first.owner.adminKey);
    const elsewhere = { ...owner, 'x-tenant-id': first.owner.workspaceIds[1] };
    expect(await refusal(send('trips/threads', elsewhere, {}))).toEqual([403, 'DEPLOYMENT_FORBIDDEN']);
  });

  it('cannot use an expired session, or one that was signed out', async () => {
    const expired = await signIn(first.owner.workspaceKeys[0]);
    await first.database.execute(
      `UPDATE sign_in_sessions SET expires_at = now() WHERE id = (SELECT session_id FROM sign_in_tokens WHERE hash = $1)`,
      [hashToken(expired.cookie.split('=')[1] ?? '')],
    );
    const left = await signIn(first.owner.workspaceKeys[0]);
    await send(`${url}/api/v1/session`, left, undefined, 'DELETE');
    for (const session of [expired, left])
      expect(await refusal(send('trips/threads', session, {}))).toEqual([401, 'SESSION_INVALID']);
  });

  it('cannot use a ticket elsewhere', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    const ticket = await captureTicket(session);
    const mine = agents.trips?.url;
    expect(await refusal(send(`${mine}/threads`, { [ticketHeader]: ticket }, {}))).toEqual([401, 'API_KEY_MISSING']);
    expect((await send('trips/threads', { [ticketHeader]: ticket }, {})).status).toBe(401);
    for (const headers of [
      { [ticketHeader]: ticket },
      { 'x-api-key': ticket },
      { authorization: `Bearer ${ticket}` },
      { cookie: session.cookie.replace(/=.*/, `=${ticket}`) },
    ] as Headers[])
      expect((await send(`${url}/api/v1/sessions`, headers)).status).toBe(401);
  });

  it('can use neither an expired nor a forged ticket', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    const captive = Buffer.from((await captureTicket(session)).split('.')[0] ?? '', 'base64url').toString();
    const sessionId = captive.split(' ')[1];
    const text = `${deploymentIds.trips} ${sessionId}`;
    const seconds = Math.floor(Date.now() / 1_000);
    const signer = createTicketSigner('secret of the tests');
    const post = async (ticket: string) =>
      (await send(`${agents.trips?.url}/threads`, { [ticketHeader]: ticket }, {})).status;
    expect(await post(signer.sign(text, seconds + 60))).toBe(200);
    expect(await post(signer.sign(text, seconds - 1))).toBe(401);
    expect(await post(createTicketSigner('another secret').sign(text, seconds + 60))).toBe(401);
    expect(await post(signer.sign(`${deploymentIds.app} ${sessionId}`, seconds + 60))).toBe(401);
    expect(await post(signer.sign(`${deploymentIds.trips} ${randomUUID()}`, seconds + 60))).toBe(401);
    // The proxy sends only its own.
    const sent = { [ticketHeader]: signer.sign(text, seconds + 60) };
    expect((await send('trips/threads', sent, {})).status).toBe(401);
    await send('captured/threads', sent);
    expect(captured.requests.at(-1)?.headers).not.toHaveProperty(ticketHeader);
  });

  it('cannot use the ticket of a session that has ended', async () => {
    const session = await signIn(first.owner.workspaceKeys[0]);
    const [, sessionId] = Buffer.from((await captureTicket(session)).split('.')[0] ?? '', 'base64url')
      .toString()
      .split(' ');
    await send(`${url}/api/v1/session`, session, undefined, 'DELETE');
    const signer = createTicketSigner('secret of the tests');
    const ticket = signer.sign(`${deploymentIds.trips} ${sessionId}`, Math.floor(Date.now() / 1_000) + 60);
    expect(await refusal(send(`${agents.trips?.url}/threads`, { [ticketHeader]: ticket }, {}))).toEqual([
      401,
      'SESSION_INVALID',
    ]);
  });
});
