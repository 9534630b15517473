import { describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { addKey, addOrganization, askAs, startApi } from '../start-api.ts';

const api = forSuite(() => startApi({ config: { maxOAuthProviders: 4, publicUrl: 'https://runlake.example/api/v1' } }));
const owner = forSuite(() => addOrganization(api.database, 'owner'));

const url = '/v2/auth/providers';
const secret = 'very-secret-value';
const provider = (id: string, more = {}) => ({
  ...{ provider_id: id, name: 'Mail', client_id: 'client', client_secret: secret },
  ...{ auth_url: 'https://mail.example/auth', token_url: 'https://mail.example/token', ...more },
});
const ask = askAs(api, owner);

it('are created, listed, read, changed and deleted', async () => {
  const created = await ask('POST', url, provider('mail'));
  expect(created).toEqual({
    status: 200,
    body: {
      id: expect.any(String),
      organization_id: owner.id,
      provider_id: 'mail',
      name: 'Mail',
      client_id: 'client',
      auth_url: 'https://mail.example/auth',
      token_url: 'https://mail.example/token',
      revocation_url: null,
      uses_pkce: true,
      code_challenge_method: 'S256',
      provider_type: null,
      mcp_server_url: null,
      token_endpoint_auth_method: 'client_secret_post',
      is_dynamic_client: false,
      redirect_uri: 'https://runlake.example/host-oauth-callback/mail',
      created_at: expect.any(String),
      updated_at: expect.any(String),
    },
  });
  expect(await ask('GET', `${url}/mail`)).toEqual(created);
  expect((await ask('GET', `/api-host${url}`)).body).toEqual([created.body]);
  expect(await ask('POST', url, provider('mail'))).toMatchObject({ status: 409 });

  const changed = await ask('PATCH', `${url}/mail`, { name: 'Post', uses_pkce: false, client_secret: null });
  expect(changed.body).toEqual({
    ...created.body,
    ...{ name: 'Post', uses_pkce: false, code_challenge_method: null, updated_at: expect.any(String) },
  });
  expect(await ask('DELETE', `${url}/mail`)).toEqual({ status: 200, body: { message: 'OAuth provider deleted' } });
  for (const method of ['GET', 'PATCH', 'DELETE'] as const) {
    expect(await ask(method, `${url}/mail`, method === 'PATCH' ? {} : undefined)).toMatchObject({ status: 404 });
  }
  const payload = { provider: 'mail', scopes: [] };
  expect(await ask('POST', '/v2/auth/authenticate', payload)).toMatchObject({
    status: 404,
    body: { detail: 'OAuth provider not found.' },
  });
});

it.each([
  ['provider_id', { provider_id: 'a/b' }],
  ['provider_id', { provider_id: '..' }],
  ['auth_url', { auth_url: 'http://mail.example/auth' }],
  ['auth_url', { auth_url: 'javascript:alert(1)' }],
  ['token_url', { token_url: 'https://user:password@mail.example/token' }],
  ['token_url', { token_url: 'https://mail.example/token#part' }],
  ['token_url', { token_url: 'mail.example' }],
  ['revocation_url', { revocation_url: 'ftp://mail.example' }],
  ['client_secret', { client_secret: null, token_endpoint_auth_method: 'client_secret_basic' }],
  ['client_secret', { client_secret: 'line\nbreak' }],
  ['uses_pkce', { client_secret: null, uses_pkce: false }],
  ['code_challenge_method', { code_challenge_method: 'plain' }],
  ['provider_type', { provider_type: 'google' }],
  ['token_endpoint_auth_method', { token_endpoint_auth_method: 'private_key_jwt' }],
])('refuses an invalid %s in list form', async (field, change) => {
  const answer = await ask('POST', url, provider('invalid', change));
  expect(answer.status).toBe(422);
  expect(answer.body.detail[0]).toEqual({ loc: ['body', field], msg: expect.any(String), type: expect.any(String) });
  expect(JSON.stringify(answer.body)).not.toContain(secret);
});

it.each([
  ['scopes', {}],
  ['scopes', { scopes: 'mail' }],
  ['scopes', { scopes: ['two words'] }],
  ['provider', { scopes: [], provider: undefined }],
  ['token_id', { scopes: [], token_id: 'no uuid' }],
  ['user_id', { scopes: [], user_id: '' }],
])('refuses to authenticate with an invalid %s in list form', async (field, change) => {
  const answer = await ask('POST', '/v2/auth/authenticate', { provider: 'mail', ...change });
  expect(answer.status).toBe(422);
  expect(answer.body.detail[0].loc.slice(0, 2)).toEqual(['body', field]);
});

it('refuses the public client of the original, which Runlake does not have', async () => {
  const payload = { provider: 'mail', scopes: [], use_agent_builder_public_oauth: true };
  expect(await ask('POST', '/v2/auth/authenticate', payload)).toMatchObject({ status: 400 });
});

it('keep the servers that get their secrets and tokens', async () => {
  await ask('POST', url, provider('kept'));
  const change = async (field: string, to: string) => (await ask('PATCH', `${url}/kept`, { [field]: to })).status;
  expect(await change('token_url', 'https://mail.example/v2/token')).toBe(200);
  expect(await change('revocation_url', 'https://mail.example/revoke')).toBe(200);
  for (const field of ['token_url', 'revocation_url'])
    for (const other of [
      'https://thief.example/token',
      'https://mail.example:8443/token',
      'http://mail.example/token',
      'x',
    ])
      expect([field, other, await change(field, other)]).toEqual([field, other, 422]);
  const { body } = await ask('GET', `${url}/kept`);
  expect(body).toMatchObject({
    token_url: 'https://mail.example/v2/token',
    revocation_url: 'https://mail.example/revoke',
  });
  await ask('DELETE', `${url}/kept`);
});

it('have a client without a secret', async () => {
  const { body } = await ask('POST', url, provider('public', { client_secret: null }));
  expect(body).toMatchObject({ token_endpoint_auth_method: 'none' });
  expect(await ask('PATCH', `${url}/public`, { uses_pkce: false })).toMatchObject({ status: 422 });
  const changed = await ask('PATCH', `${url}/public`, { client_secret: secret });
  expect(changed.body).toMatchObject({ token_endpoint_auth_method: 'client_secret_post' });
  await ask('DELETE', `${url}/public`);
});

it('belong to the organisation: keys of a workspace read them, and only keys of the organisation change them', async () => {
  await ask('POST', url, provider('shared'));
  for (const key of owner.workspaceKeys) {
    expect((await api.ask(key, 'GET', `${url}/shared`)).body).toMatchObject({ provider_id: 'shared' });
    expect(await api.ask(key, 'PATCH', `${url}/shared`, { name: 'x' })).toMatchObject({
      status: 403,
      body: { remedy: "The API key lacks the permission 'oauth:manage'." },
    });
  }
  const other = await addOrganization(api.database, 'other');
  expect(await api.ask(other.adminKey, 'GET', `${url}/shared`)).toMatchObject({ status: 404 });
  // Each organisation has its own names.
  expect(await api.ask(other.adminKey, 'POST', url, provider('shared'))).toMatchObject({ status: 200 });
  await ask('DELETE', `${url}/shared`);
  expect(await api.ask(other.adminKey, 'GET', `${url}/shared`)).toMatchObject({ status: 200 });
});

it('are limited per organisation', async () => {
  for (let n = 1; n <= 4; n += 1) expect(await ask('POST', url, provider(`n${n}`))).toMatchObject({ status: 200 });
  expect(await ask('POST', url, provider('n5'))).toMatchObject({ status: 422, body: { code: 'LIMIT_REACHED' } });
  expect((await ask('GET', url)).body).toHaveLength(4);
  for (let n = 1; n <= 4; n += 1) await ask('DELETE', `${url}/n${n}`);
});

describe('requests to a provider', () => {
  it.each([
    ['https://127.0.0.1:9/token', 'loopback'],
    ['https://localhost:9/token', 'loopback'],
    ['https://[::1]:9/token', 'loopback'],
    ['https://10.1.2.3/token', 'private'],
    ['https://169.254.169.254/token', 'metadata'],
  ])('are not sent to %s', async (tokenUrl, range) => {
    await ask('POST', url, provider('private', { token_url: tokenUrl }));
    const pending = await ask('POST', '/v2/auth/authenticate', { provider: 'private', scopes: [] });
    const state = new URL(pending.body.url).searchParams.get('state');
    const answer = await ask('POST', '/v2/auth/callback/private', { state, code: 'code' });
    expect(answer).toMatchObject({ status: 400, body: { code: 'OAUTH_ENDPOINT_NOT_ALLOWED' } });
    expect(answer.body.detail).toContain(range);
    expect(JSON.stringify(answer.body)).not.toContain(secret);
    await ask('DELETE', `${url}/private`);
  });
});

it('need only the permission to read for a read-only key', async () => {
  await ask('POST', url, provider('read'));
  const readOnly = await addKey({
    ...{ database: api.database, organizationId: owner.id, userId: owner.userId, readOnly: true },
    defaultWorkspaceId: owner.workspaceIds[0],
  });
  expect(await api.ask(readOnly, 'GET', url)).toMatchObject({ status: 200 });
  expect(await api.ask(readOnly, 'GET', '/v2/auth/tokens')).toMatchObject({ status: 200 });
  const payload = { provider: 'read', scopes: [] };
  expect(await api.ask(readOnly, 'POST', '/v2/auth/authenticate', payload)).toMatchObject({ status: 403 });
  await ask('DELETE', `${url}/read`);
});
