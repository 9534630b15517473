import { createServer, type Server } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { addOrganization, askAs, startApi } from '../start-api.ts';

/**
 * Differences of providers from the standard. The server sends responses as the documentation of the providers shows
 * them, because the providers themselves are not reachable from tests.
 */
const api = forSuite(() => startApi({ config: { publicUrl: 'https://runlake.example', allowPrivateEndpoints: true } }));
const owner = forSuite(() => addOrganization(api.database, 'owner'));
let server: Server;
let url: string;
let response: { readonly status: number; readonly body: object | string };
const bodies: URLSearchParams[] = [];

beforeAll(async () => {
  server = createServer(async (request, answer) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    bodies.push(new URLSearchParams(body));
    const text = typeof response.body === 'string' ? response.body : JSON.stringify(response.body);
    answer.writeHead(response.status, { 'content-type': 'application/json' }).end(text);
  });
  const port = await listenOnLoopback(server);
  url = `http://127.0.0.1:${port}`;
});
afterAll(() => void server.close());

const ask = askAs(api, owner);

/** Starts an authentication with a new provider. Returns the parameters of its URL, and a function that redeems a code. */
async function start(providerId: string, more: object, scopes = ['chat:write', 'files:read']) {
  await ask('POST', '/v2/auth/providers', {
    ...{ provider_id: providerId, name: providerId, client_id: 'client', client_secret: 'secret' },
    ...{ auth_url: `${url}/authorize`, token_url: `${url}/token`, ...more },
  });
  const request = { provider: providerId, scopes };
  const { body } = await ask('POST', '/v2/auth/authenticate', request);
  const parameters = new URL(body.url).searchParams;
  const state = parameters.get('state');
  return {
    parameters,
    redeem: () => ask('POST', `/v2/auth/callback/${providerId}`, { state, code: 'code' }),
    again: async () => (await ask('POST', '/v2/auth/authenticate', request)).body,
  };
}

it('slack: asks for scopes of the user, and takes the token of the user', async () => {
  const { parameters, redeem, again } = await start('slack', { provider_type: 'slack' });
  expect([parameters.get('user_scope'), parameters.get('scope')]).toEqual(['chat:write,files:read', null]);
  const user = { id: 'U1', scope: 'chat:write,files:read', access_token: 'xoxp-user', token_type: 'user' };
  response = { status: 200, body: { ok: true, app_id: 'A1', authed_user: user, team: { id: 'T1' } } };
  expect(await redeem()).toMatchObject({ status: 200 });
  expect(await again()).toMatchObject({ token: 'xoxp-user', metadata: { scopes: ['chat:write', 'files:read'] } });

  const slack = '/v2/auth/tokens/workspace/slack';
  expect(await ask('GET', `${slack}/exists`)).toEqual({ status: 200, body: { has_token: true } });
  expect(await api.ask(owner.workspaceKeys[0], 'DELETE', slack)).toMatchObject({ status: 403 });
  expect((await api.ask(owner.workspaceKeys[1], 'GET', `${slack}/exists`)).body).toEqual({ has_token: false });
  expect(await ask('DELETE', slack)).toMatchObject({ status: 200, body: { deleted: 1 } });
  expect(await ask('GET', `${slack}/exists`)).toEqual({ status: 200, body: { has_token: false } });
});

it.each([
  ['microsoft', 'offline_access'],
  ['salesforce', 'refresh_token'],
])('%s: asks for the scope %s, without which it sends no refresh token', async (provider_type, scope) => {
  const { parameters, redeem, again } = await start(provider_type, { provider_type }, ['api']);
  expect(parameters.get('scope')).toBe(`api ${scope}`);
  response = { status: 200, body: { access_token: 'a', refresh_token: 'r', token_type: 'Bearer', scope: 'api' } };
  expect(await redeem()).toMatchObject({ status: 200 });
  expect(await again()).toMatchObject({ status: 'completed', token: 'a' });
});

it('microsoft: does not repeat the scope offline_access, neither at first nor in a refresh', async () => {
  const { redeem, again } = await start('repeats-less', { provider_type: 'microsoft' }, ['api', 'offline_access']);
  response = { status: 200, body: { access_token: 'a', refresh_token: 'r', token_type: 'Bearer', scope: 'api' } };
  expect(await redeem()).toMatchObject({ status: 200 });
  for (const access_token of ['b', 'c']) {
    await api.database.execute(`UPDATE oauth_tokens SET expires_at = now(), fresh_until = now()`);
    response = { status: 200, body: { access_token, token_type: 'Bearer', scope: 'api' } };
    expect(await again()).toMatchObject({ status: 'completed', token: access_token });
  }
});

it('a refresh that returns fewer scopes than are needed starts a new authentication', async () => {
  const { redeem, again } = await start('fewer', {});
  const scopes = 'chat:write files:read';
  response = { status: 200, body: { access_token: 'a', refresh_token: 'r', token_type: 'Bearer', scope: scopes } };
  expect(await redeem()).toMatchObject({ status: 200 });
  await api.database.execute(`UPDATE oauth_tokens SET expires_at = now(), fresh_until = now()`);
  response = { status: 200, body: { access_token: 'b', token_type: 'Bearer', scope: 'chat:write' } };
  expect(await again()).toMatchObject({ status: 'pending', token: null });
});

it('github: separates scopes with commas, and sends errors with status 200', async () => {
  const first = await start('github', { token_endpoint_auth_method: 'client_secret_post' }, ['repo', 'gist']);
  response = {
    status: 200,
    body: { error: 'bad_verification_code', error_description: 'The code secret-text is wrong.' },
  };
  const refused = await first.redeem();
  expect(refused).toMatchObject({ status: 400, body: { code: 'OAUTH_PROVIDER_REFUSED' } });
  expect(refused.body.detail).toBe(
    "The OAuth provider 'github' refused the request: it answered 'bad_verification_code'.",
  );
  const second = await start('github', {}, ['repo', 'gist']);
  response = { status: 200, body: { access_token: 'gho', token_type: 'bearer', scope: 'repo,gist,user' } };
  expect(await second.redeem()).toMatchObject({ status: 200 });
  expect(await second.again()).toMatchObject({
    token: 'gho',
    metadata: { scopes: ['repo', 'gist', 'user'], expires_at: null },
  });
  expect(Object.fromEntries(bodies.at(-1) ?? [])).toMatchObject({ client_id: 'client', client_secret: 'secret' });
});

it.each([
  ['no token', { status: 200, body: { token_type: 'bearer', note: 'secret-text' } }],
  ['text', { status: 200, body: '<html>secret-text</html>' }],
  ['a list', { status: 200, body: ['secret-text'] }],
  ['a token type that is not supported', { status: 200, body: { access_token: 'secret-text', token_type: 'mac' } }],
  [
    'an invalid lifetime',
    { status: 200, body: { access_token: 'secret-text', token_type: 'bearer', expires_in: 'x' } },
  ],
  ['a redirect', { status: 302, body: 'secret-text' }],
  ['an error with text', { status: 400, body: { error: 'secret text <b>', error_description: 'secret-text' } }],
])('refuses %s, without repeating it', async (what, sent) => {
  const { redeem, again } = await start(`bad-${what.replace(/\W/g, '-')}`, {});
  response = sent;
  const answer = await redeem();
  expect(answer).toMatchObject({ status: 400, body: { code: 'OAUTH_PROVIDER_REFUSED' } });
  expect(JSON.stringify(answer.body)).not.toMatch(/secret-text|<b>/);
  expect(await again()).toMatchObject({ status: 'pending' });
});

it('refuses a response that is too large', async () => {
  const { redeem } = await start('large', {});
  response = { status: 200, body: { access_token: 'secret-text'.repeat(100_000), token_type: 'bearer' } };
  const answer = await redeem();
  expect(answer).toMatchObject({ status: 400, body: { code: 'OAUTH_RESPONSE_TOO_LARGE' } });
  expect(answer.body.detail).toMatch(/^The response of 127\.0\.0\.1:\d+ is larger than 262144 bytes\.$/);
});
