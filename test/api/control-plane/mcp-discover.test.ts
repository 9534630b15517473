import type { IncomingMessage, ServerResponse } from 'node:http';
import { afterEach, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { addOrganization, askAs, startApi } from '../start-api.ts';
import { startOAuthServer } from './oauth-server.ts';

/** Changes of a test to the metadata that the MCP server and the OAuth server publish. */
let resourceMetadata: object | undefined;
let serverMetadata: object | undefined;
const paths: string[] = [];

/** The routes of an MCP server that needs a token, in front of those of its authorization server. */
function handle(request: IncomingMessage, response: ServerResponse): boolean {
  const path = request.url ?? '';
  paths.push(path);
  const send = (status: number, body: object, headers = {}) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
    return true;
  };
  if (path === '/open/mcp') {
    // The stream does not end.
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': open\n\n');
    return true;
  }
  if (path === '/mcp') {
    const challenge = `Bearer resource_metadata="${server.issuer}/metadata-of-mcp"`;
    return send(401, { error: 'invalid_token' }, { 'www-authenticate': challenge });
  }
  if (path === '/metadata-of-mcp') {
    return send(200, { resource: `${server.issuer}/mcp`, authorization_servers: [server.issuer], ...resourceMetadata });
  }
  if (path.startsWith('/.well-known/') && serverMetadata) return send(200, serverMetadata);
  return false;
}

const server = forSuite(() => startOAuthServer({ redirectUris: ['https://runlake.example/'], handle }));
const api = forSuite(() => startApi({ config: { publicUrl: 'https://runlake.example', allowPrivateEndpoints: true } }));
const owner = forSuite(() => addOrganization(api.database, 'owner'));
afterEach(() => {
  resourceMetadata = undefined;
  serverMetadata = undefined;
  paths.length = 0;
});

const ask = askAs(api, owner);
const discover = (more = {}) =>
  ask('POST', '/v2/auth/providers/mcp-discover', {
    ...{ provider_id: 'tools', name: 'Tools', mcp_server_url: `${server.issuer}/mcp`, ...more },
  });
const readServerMetadata = async () =>
  (await fetch(`${server.issuer}/.well-known/openid-configuration`)).json() as object;

it('finds the authorization server, registers a client, and gets tokens for the MCP server', async () => {
  const created = await discover();
  expect(created).toMatchObject({
    status: 200,
    body: {
      provider_id: 'tools',
      auth_url: server.authUrl,
      token_url: server.tokenUrl,
      revocation_url: server.revocationUrl,
      uses_pkce: true,
      mcp_server_url: `${server.issuer}/mcp`,
      token_endpoint_auth_method: 'none',
      is_dynamic_client: true,
      redirect_uri: 'https://runlake.example/host-oauth-callback/tools',
    },
  });
  expect(paths).toEqual(expect.arrayContaining(['/mcp', '/metadata-of-mcp', '/reg']));
  expect(await discover()).toMatchObject({ status: 409 });

  const request = { provider: 'tools', scopes: ['mail.read'], user_id: 'anna' };
  const pending = await ask('POST', '/v2/auth/authenticate', request);
  const url = new URL(pending.body.url);
  expect(Object.fromEntries(url.searchParams)).toMatchObject({
    client_id: created.body.client_id,
    resource: `${server.issuer}/mcp`,
    redirect_uri: 'https://runlake.example/host-oauth-callback/tools',
  });
  const redirect = await server.visit(pending.body.url);
  // RFC 9207: the issuer in the redirect must be the one that the metadata names.
  const forged = new URL(redirect);
  forged.searchParams.set('iss', 'https://other.example');
  const open = async (target: URL) => (await api.server.inject(target.pathname + target.search)).statusCode;
  expect(await open(forged)).toBe(400);
  const second = await ask('POST', '/v2/auth/authenticate', request);
  expect(await open(await server.visit(second.body.url))).toBe(200);
  const completed = await ask('POST', '/v2/auth/authenticate', request);
  expect(completed.body).toMatchObject({ status: 'completed', token: expect.any(String) });

  await api.database.execute(`UPDATE oauth_tokens SET fresh_until = now(), expires_at = now()`);
  const refreshed = await ask('POST', '/v2/auth/authenticate', request);
  expect(refreshed.body).toMatchObject({ status: 'completed', token: expect.any(String) });
  expect(refreshed.body.token).not.toBe(completed.body.token);
  expect(server.grants.at(-1)).toBe('refresh_token success');
});

it.each([
  ['does not support PKCE', { code_challenge_methods_supported: undefined }, 'it does not support PKCE with S256'],
  ['registers no clients', { registration_endpoint: undefined }, 'it has no endpoint for dynamic client registration'],
  [
    'authenticates clients only with keys',
    { token_endpoint_auth_methods_supported: ['private_key_jwt'] },
    'it supports none of none, client_secret_basic, client_secret_post',
  ],
  ['has invalid metadata', { token_endpoint: 7 }, 'the discovery failed: its response is not valid'],
])('refuses an authorization server that %s', async (_what, change, reason) => {
  serverMetadata = { ...(await readServerMetadata()), ...change };
  const answer = await discover({ provider_id: 'refused' });
  expect(answer).toMatchObject({ status: 400, body: { code: 'OAUTH_DISCOVERY_FAILED' } });
  expect(answer.body.detail).toContain(reason);
});

it('refuses metadata of another resource', async () => {
  resourceMetadata = { resource: `${server.issuer}/other` };
  const answer = await discover({ provider_id: 'refused' });
  expect(answer).toMatchObject({ status: 400, body: { code: 'OAUTH_DISCOVERY_FAILED' } });
  expect(answer.body.detail).toContain('is that of another server');
});

it('finds the authorization server of a server that answers without a token', async () => {
  const created = await discover({ provider_id: 'open', mcp_server_url: `${server.issuer}/open/mcp` });
  // There is no metadata of the resource, so the server itself is the authorization server.
  expect(created).toMatchObject({ status: 200, body: { auth_url: server.authUrl, is_dynamic_client: true } });
}, 30_000);

it('does not follow the metadata to an address that is never allowed', async () => {
  resourceMetadata = { authorization_servers: ['http://169.254.169.254/'] };
  const answer = await discover({ provider_id: 'refused' });
  expect(answer).toMatchObject({ status: 400, body: { code: 'OAUTH_ENDPOINT_NOT_ALLOWED' } });
});

it('refuses a server that is down, and one that is no MCP server', async () => {
  server.mode = 'failing';
  const failing = await discover({ provider_id: 'refused' });
  server.mode = 'up';
  expect(failing).toMatchObject({ status: 400, body: { code: 'OAUTH_DISCOVERY_FAILED' } });
  const closed = await discover({ provider_id: 'refused', mcp_server_url: 'http://127.0.0.1:1/mcp' });
  expect(closed).toMatchObject({ status: 400, body: { code: 'OAUTH_DISCOVERY_FAILED' } });
  expect(closed.body.detail).toContain('the connection failed (ECONNREFUSED)');
  for (const mcp_server_url of ['no url', 'ftp://example.com/mcp']) {
    expect(await discover({ provider_id: 'refused', mcp_server_url })).toMatchObject({
      status: 422,
      body: { detail: [{ loc: ['body', 'mcp_server_url'] }] },
    });
  }
});
