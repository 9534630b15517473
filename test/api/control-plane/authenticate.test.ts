import { describe, expect, it, vi } from 'vitest';
import { authenticate } from '../../../pipelines/oauth/authenticate.ts';
import { openOAuth } from '../../../pipelines/oauth/oauth-deps.ts';
import { hashKey } from '../../../pipelines/tenants/key-format.ts';
import { forSuite } from '../../for-suite.ts';
import { addKey } from '../start-api.ts';
import { startOAuthFlow } from './oauth-flow.ts';

const flow = forSuite(() => startOAuthFlow());

describe('from authenticate to a token', () => {
  it('returns a URL, completes at the redirect, and then returns the token', async () => {
    const pending = await flow.authenticate();
    expect(pending).toEqual({
      status: 'pending',
      url: expect.any(String),
      auth_id: expect.any(String),
      token: null,
      user_id: 'anna',
      metadata: null,
    });
    const url = new URL(pending.url);
    expect(Object.fromEntries(url.searchParams)).toEqual({
      prompt: 'consent',
      response_type: 'code',
      client_id: 'runlake-client',
      redirect_uri: 'https://runlake.example/host-oauth-callback/mail',
      scope: 'mail.read',
      state: expect.stringContaining(pending.auth_id),
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
    });

    const waiting = flow.ask('GET', `/v2/auth/wait/${pending.auth_id}?timeout=20`);
    const redirect = await flow.server.visit(pending.url);
    expect(await flow.redirect(redirect)).toEqual({
      status: 200,
      sentence: 'You have given access to Mail &lt;b&gt;, and can close this page.',
    });
    const { body: waited } = await waiting;
    expect(waited).toEqual({ status: 'completed', token: expect.any(String) });
    expect(await flow.server.isActive(waited.token)).toBe(true);

    const completed = await flow.authenticate();
    expect(completed).toMatchObject({ status: 'completed', token: waited.token, url: null, auth_id: null });
    expect(completed.metadata).toMatchObject({ scopes: ['mail.read'], token_id: expect.any(String) });
  });
});

describe('wait', () => {
  const wait = (id: string, seconds: number) => flow.ask('GET', `/v2/auth/wait/${id}?timeout=${seconds}`);

  it('tells that nothing has happened yet', async () => {
    const { auth_id } = await flow.authenticate({ user_id: 'slow' });
    expect((await wait(auth_id, 0)).body).toEqual({ status: 'pending', token: null });
    const startedMs = performance.now();
    expect((await wait(auth_id, 1)).body).toEqual({ status: 'timeout', token: null });
    expect(performance.now() - startedMs).toBeGreaterThan(950);
  });

  it('knows only the authentications of its workspace', async () => {
    const { auth_id } = await flow.authenticate({ user_id: 'slow' });
    const [, other] = flow.organization.workspaceKeys;
    for (const id of [auth_id, '00000000-0000-4000-8000-000000000000', 'no-uuid']) {
      const { body } = await flow.api.ask(other, 'GET', `/v2/auth/wait/${id}?timeout=5`);
      expect(body).toEqual({ status: 'not_found', token: null });
    }
  });

  it('ends without a token when the key is revoked', async () => {
    const { database } = flow.api;
    const { id: organizationId, userId, workspaceIds } = flow.organization;
    const key = await addKey({ database, organizationId, userId, workspaceIds: [workspaceIds[0]] });
    const { auth_id, url } = await flow.authenticate({ user_id: 'revoked key' });
    const queries = vi.spyOn(flow.api.services.oauth.database, 'query');
    const waiting = flow.api.ask(key, 'GET', `/v2/auth/wait/${auth_id}?timeout=30`);
    await expect.poll(() => queries.mock.calls.some(([sql]) => sql.includes('oauth_authentications'))).toBe(true);
    queries.mockRestore();
    await database.execute('UPDATE api_keys SET revoked_at = now() WHERE hash = $1', [hashKey(key)]);
    expect(await waiting).toMatchObject({ status: 401, body: { code: 'API_KEY_INVALID' } });
    expect(await flow.redirect(await flow.server.visit(url))).toMatchObject({ status: 200 });
  }, 60_000);

  it('accepts timeouts of at most ten minutes', async () => {
    for (const timeout of ['-1', '601', '1.5', 'soon']) {
      const answer = await flow.ask('GET', `/v2/auth/wait/x?timeout=${timeout}`);
      expect(answer).toMatchObject({ status: 422, body: { detail: [{ loc: ['query', 'timeout'] }] } });
    }
  });
});

describe('several processes', () => {
  it('refresh a token once', async () => {
    const user_id = 'several processes';
    const granted = await flow.grant({ user_id });
    await flow.expire(user_id);
    const before = flow.server.grants.length;
    const { config, oauth } = flow.api.services;
    const processes = [oauth, openOAuth(config, oauth), openOAuth(config, oauth)];
    const owner = {
      workspaceId: flow.organization.workspaceIds[0],
      organizationId: flow.organization.id,
      userId: user_id,
    };
    const results = await Promise.all(
      processes.flatMap((deps) =>
        [1, 2].map(() => authenticate(deps, owner, { providerId: 'mail', scopes: ['mail.read'] })),
      ),
    );
    for (const process of processes.slice(1)) process.close();
    expect(flow.server.grants.slice(before)).toEqual(['refresh_token success']);
    const tokens = results.map((result) => (result.status === 'completed' ? result.token.accessToken : undefined));
    expect(new Set(tokens).size).toBe(1);
    expect(tokens[0]).not.toBe(granted.token);
  });

  it('complete two authentications of a user with one token', async () => {
    const user_id = 'two authentications';
    const started = await Promise.all([flow.authenticate({ user_id }), flow.authenticate({ user_id })]);
    const redirects = [];
    for (const { url } of started) redirects.push(await flow.server.visit(url));
    const pages = await Promise.all(redirects.map((redirect) => flow.redirect(redirect)));
    expect(pages.map(({ status }) => status)).toEqual([200, 200]);
    expect((await flow.ask('GET', `/v2/auth/tokens?user_id=two%20authentications`)).body).toHaveLength(1);
    expect(await flow.authenticate({ user_id })).toMatchObject({ status: 'completed' });
  });
});
