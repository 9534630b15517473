import { randomUUID } from 'node:crypto';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startOAuthFlow } from './oauth-flow.ts';

const flow = forSuite(() => startOAuthFlow());
afterEach(() => {
  Object.assign(flow.server, { mode: 'up', accessTokenSeconds: 3_600, issuesRefreshTokens: true });
  vi.useRealTimers();
});

const countRefreshes = () => flow.server.grants.filter((grant) => grant === 'refresh_token success').length;
const tokensOf = async (user: string) =>
  (await flow.ask('GET', `/v2/auth/tokens?user_id=${encodeURIComponent(user)}`)).body;

describe('refresh', () => {
  it('gets a new token with the refresh token, and keeps the new refresh token', async () => {
    const user_id = 'refresh';
    const first = await flow.grant({ user_id });
    for (let round = 1; round <= 3; round += 1) {
      await flow.expire(user_id);
      const before = countRefreshes();
      const next = await flow.authenticate({ user_id });
      expect(next).toMatchObject({ status: 'completed', metadata: { token_id: first.metadata.token_id } });
      expect(next.token).not.toBe(first.token);
      expect(await flow.server.isActive(next.token)).toBe(true);
      expect(Date.parse(next.metadata.expires_at)).toBeGreaterThan(Date.now() + 3_500_000);
      expect(countRefreshes()).toBe(before + 1);
    }
  });

  it('is sent once for many callers at the same time', async () => {
    const user_id = 'many';
    await flow.grant({ user_id });
    await flow.expire(user_id);
    const before = countRefreshes();
    const answers = await Promise.all(Array.from({ length: 12 }, () => flow.authenticate({ user_id })));
    expect(countRefreshes()).toBe(before + 1);
    expect(new Set(answers.map(({ token }) => token)).size).toBe(1);
    expect(answers.every(({ status }) => status === 'completed')).toBe(true);
  });

  it('continues after a process that died while it refreshed', async () => {
    const user_id = 'died';
    await flow.grant({ user_id });
    await flow.expire(user_id);
    await flow.api.database.execute(
      `UPDATE oauth_tokens SET refresh_lease = gen_random_uuid(), refresh_lease_until = now() + interval '1 second'
       WHERE user_id = $1`,
      [user_id],
    );
    const before = countRefreshes();
    expect(await flow.authenticate({ user_id })).toMatchObject({ status: 'completed' });
    expect(countRefreshes()).toBe(before + 1);
  });

  it('happens before the token expires', async () => {
    const user_id = 'ahead';
    flow.server.accessTokenSeconds = 100;
    await flow.grant({ user_id });
    const [token] = await flow.api.database.query<{ ahead: number }>(
      'SELECT extract(epoch FROM expires_at - fresh_until)::int AS ahead FROM oauth_tokens WHERE user_id = $1',
      [user_id],
    );
    expect(token).toEqual({ ahead: 20 });
    await flow.api.database.execute('UPDATE oauth_tokens SET fresh_until = now() WHERE user_id = $1', [user_id]);
    const before = countRefreshes();
    await flow.authenticate({ user_id });
    expect(countRefreshes()).toBe(before + 1);
  });

  it.each([
    ['revoked at the provider', async (user: string) => revokeAtProvider(user)],
    [
      'expired',
      async () => {
        const { Date: clock } = globalThis;
        vi.useFakeTimers({ toFake: ['Date'], now: clock.now() + 2 * 86_400_000 });
      },
    ],
  ])('of a token that was %s starts a new authentication, which replaces the token', async (what, end) => {
    const user_id = `dead ${what}`;
    const first = await flow.grant({ user_id });
    await flow.expire(user_id);
    await end(user_id);
    const pending = await flow.authenticate({ user_id });
    expect(pending).toMatchObject({ status: 'pending', url: expect.any(String), token: null });
    vi.useRealTimers();
    // The dead refresh token is not sent again.
    const before = flow.server.grants.length;
    expect(await flow.authenticate({ user_id })).toMatchObject({ status: 'pending' });
    expect(flow.server.grants.length).toBe(before);

    await flow.redirect(await flow.server.visit(pending.url));
    const again = await flow.authenticate({ user_id });
    expect(again).toMatchObject({ status: 'completed', metadata: { token_id: first.metadata.token_id } });
    expect(await tokensOf(user_id)).toHaveLength(1);
  });

  it('does not use a token that expired without a refresh token', async () => {
    const user_id = 'no refresh token';
    flow.server.issuesRefreshTokens = false;
    expect(await flow.grant({ user_id })).toMatchObject({ status: 'completed' });
    await flow.expire(user_id);
    expect(await flow.authenticate({ user_id })).toMatchObject({ status: 'pending' });
  });

  it('fails with a transient error while the provider is down, and succeeds afterwards', async () => {
    const user_id = 'down';
    await flow.grant({ user_id });
    await flow.expire(user_id);
    flow.server.mode = 'failing';
    const payload = { user_id, provider: 'mail', scopes: [] };
    const down = await flow.ask('POST', '/v2/auth/authenticate', payload);
    expect(down).toMatchObject({ status: 502, body: { code: 'OAUTH_PROVIDER_UNAVAILABLE' } });
    expect(down.body.detail).toBe("The OAuth provider 'mail' cannot be reached: it answered 503.");
    flow.server.mode = 'up';
    expect(await flow.authenticate({ user_id })).toMatchObject({ status: 'completed' });
  });

  it('uses a token until it expires if the provider is down', async () => {
    const user_id = 'down but valid';
    const { token } = await flow.grant({ user_id });
    await flow.api.database.execute('UPDATE oauth_tokens SET fresh_until = now() WHERE user_id = $1', [user_id]);
    flow.server.mode = 'failing';
    expect(await flow.authenticate({ user_id })).toMatchObject({ status: 'completed', token });
  });

  it.each([-1, 1])('does not depend on the clocks of the provider and of this process (%i hours)', async (hours) => {
    const user_id = `skew ${hours}`;
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * 3_600_000 });
    // With `openid`, the response has an ID token, whose times are those of the provider.
    const granted = await flow.grant({ user_id, scopes: ['openid', 'mail.read'] });
    vi.useRealTimers();
    const leftMs = Date.parse(granted.metadata.expires_at) - Date.now();
    expect(leftMs).toBeGreaterThan(3_500_000);
    expect(leftMs).toBeLessThanOrEqual(3_600_000);
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * 3_600_000 });
    await flow.expire(user_id);
    expect(await flow.authenticate({ user_id, scopes: ['openid', 'mail.read'] })).toMatchObject({
      status: 'completed',
    });
  });
});

/** Revokes the refresh token of a user at the provider, as a user does on the pages of the provider. */
async function revokeAtProvider(user: string): Promise<void> {
  const { database, services } = flow.api;
  const [row] = await database.query<{ id: string; sealed: string }>(
    'SELECT id, sealed_refresh_token AS sealed FROM oauth_tokens WHERE user_id = $1',
    [user],
  );
  const { text } = services.secretSealer.open(row?.sealed ?? '', `oauth token ${row?.id} refresh`);
  const body = new URLSearchParams({
    token: text,
    client_id: 'runlake-client',
    client_secret: 'client-secret-of-the-tests',
  });
  expect(await fetch(flow.server.revocationUrl, { method: 'POST', body })).toMatchObject({ status: 200 });
}

describe('scopes', () => {
  it('are widened by a new authentication that keeps the former ones', async () => {
    const user_id = 'wider';
    const first = await flow.grant({ user_id, scopes: ['mail.read'] });
    const pending = await flow.authenticate({ user_id, scopes: ['mail.send'] });
    expect(pending.status).toBe('pending');
    expect(new URL(pending.url).searchParams.get('scope')?.split(' ').sort()).toEqual(['mail.read', 'mail.send']);
    // The former token stays usable until the user has consented.
    expect(await flow.authenticate({ user_id, scopes: ['mail.read'] })).toMatchObject({ token: first.token });
    await flow.redirect(await flow.server.visit(pending.url));
    const both = await flow.authenticate({ user_id, scopes: ['mail.send', 'mail.read'] });
    expect(both).toMatchObject({ status: 'completed', metadata: { token_id: first.metadata.token_id } });
    expect(both.metadata.scopes.sort()).toEqual(['mail.read', 'mail.send']);
    expect(await tokensOf(user_id)).toHaveLength(1);
  });

  it('are those that the user granted, not those that were asked for', async () => {
    const user_id = 'fewer';
    const { url } = await flow.authenticate({ user_id, scopes: ['mail.read', 'mail.send'] });
    await flow.redirect(await flow.server.visit(url, 'allow', ['mail.read']));
    expect(await flow.authenticate({ user_id, scopes: ['mail.send'] })).toMatchObject({ status: 'pending' });
    expect(await flow.authenticate({ user_id, scopes: ['mail.read'] })).toMatchObject({ status: 'completed' });
    expect(await flow.authenticate({ user_id, scopes: [] })).toMatchObject({ status: 'completed' });
  });
});

describe('users', () => {
  it('have three names with one meaning', async () => {
    const granted = await flow.grant({ user_id: 'synonym' });
    for (const names of [
      { user_id: null, svc_user_id: 'synonym' },
      { user_id: null, ls_user_id: 'synonym' },
      { user_id: 'synonym', ls_user_id: 'synonym', svc_user_id: null },
    ]) {
      expect(await flow.authenticate(names)).toMatchObject({ token: granted.token, user_id: 'synonym' });
    }
    const payload = { provider: 'mail', scopes: [], user_id: 'synonym', ls_user_id: 'other' };
    expect(await flow.ask('POST', '/v2/auth/authenticate', payload)).toMatchObject({
      status: 422,
      body: { detail: [{ loc: ['body', 'user_id'], msg: expect.stringContaining('differs') }] },
    });
  });

  it('are by default those of the key', async () => {
    expect(await flow.authenticate({ user_id: null })).toMatchObject({ user_id: flow.organization.userId });
  });

  it('of other organisations, and removed ones, are unknown', async () => {
    const stranger = randomUUID();
    const organizationId = randomUUID();
    const { database } = flow.api;
    await database.execute(`INSERT INTO organizations (id, display_name) VALUES ($1, 'other')`, [organizationId]);
    const insertUser = `INSERT INTO users (id, organization_id, email, removed_at) VALUES ($1, $2, $3, $4)`;
    await database.execute(insertUser, [stranger, organizationId, 'stranger@example.com', null]);
    const removed = randomUUID();
    const removedAt = new Date().toISOString();
    await database.execute(insertUser, [removed, flow.organization.id, 'removed@example.com', removedAt]);
    for (const user_id of [stranger, stranger.toUpperCase(), removed]) {
      const payload = { provider: 'mail', scopes: [], user_id };
      expect(await flow.ask('POST', '/v2/auth/authenticate', payload)).toMatchObject({ status: 404 });
      expect(await flow.ask('GET', `/v2/auth/tokens?user_id=${user_id}`)).toMatchObject({ status: 404 });
    }
  });

  it('do not see tokens of the same name in other workspaces', async () => {
    await flow.grant({ user_id: 'same name' });
    const payload = { provider: 'mail', scopes: [], user_id: 'same name' };
    const [, other] = flow.organization.workspaceKeys;
    expect((await flow.api.ask(other, 'POST', '/v2/auth/authenticate', payload)).body).toMatchObject({
      status: 'pending',
    });
    expect((await flow.api.ask(other, 'GET', '/v2/auth/tokens?user_id=same%20name')).body).toEqual([]);
  });
});

describe('secrets', () => {
  it('are stored encrypted, and are in no list', async () => {
    const user_id = 'secrets';
    const { token } = await flow.grant({ user_id });
    const stored = JSON.stringify([
      await flow.api.database.query('SELECT * FROM oauth_tokens'),
      await flow.api.database.query('SELECT * FROM oauth_providers'),
      await flow.api.database.query('SELECT * FROM oauth_authentications'),
    ]);
    const lists = JSON.stringify([
      await tokensOf(user_id),
      (await flow.ask('GET', '/v2/auth/providers')).body,
      (await flow.ask('GET', '/v2/auth/providers/mail')).body,
    ]);
    for (const text of [stored, lists]) {
      expect(text).not.toContain(token);
      expect(text).not.toContain('client-secret-of-the-tests');
    }
    expect(lists).not.toContain('sealed');
  });
});
