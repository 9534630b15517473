import { describe, expect, it } from 'vitest';
import { removeOwnCookies } from '../../../../api/server/session-cookie.ts';
import { createAuthenticator } from '../../../../pipelines/tenants/authenticate.ts';
import { hashKey } from '../../../../pipelines/tenants/key-format.ts';
import { findOperatorKey, type SignInKey } from '../../../../pipelines/tenants/sign-in-links.ts';
import { forSuite } from '../../../for-suite.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';
import { type Browser, openBrowser } from './browser.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const other = forSuite(() => addOrganization(api.database, 'other'));

const signIn = async (key: string): Promise<Browser> => {
  const browser = openBrowser(api.server);
  const answer = await browser.send('POST', '/api/v1/session', { api_key: key });
  expect(answer.statusCode).toBe(201);
  browser.csrfToken = answer.json().csrf_token;
  return browser;
};
/** Makes the value of the cookie, and the session, older. */
const age = async (interval: string) => {
  await api.database.execute(`UPDATE sign_in_tokens SET created_at = created_at - $1::interval`, [interval]);
  await api.database.execute(
    `UPDATE sign_in_sessions SET created_at = created_at - $1::interval, last_used_at = last_used_at - $1::interval,
       expires_at = expires_at - $1::interval`,
    [interval],
  );
  api.services.authenticator.forgetAll();
};

describe('signing in', () => {
  it('exchanges a key for a cookie that pages cannot read', async () => {
    const answer = await api.server.inject({
      method: 'POST',
      url: '/api/v1/session',
      payload: { api_key: ` ${acme.adminKey}\n` },
    });
    expect(answer.statusCode).toBe(201);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(answer.headers['set-cookie']).toMatch(
      /^runlake_session=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=604800$/,
    );
    const session = answer.json();
    expect(session).toMatchObject({
      workspace: { id: acme.workspaceIds[0], display_name: 'acme 1' },
      organization: { id: acme.id, display_name: 'acme' },
      user: { id: acme.userId, email: 'admin@acme.example', full_name: null },
      application: { version: '0.1.0', oidc: false, public_prompts: false },
    });
    expect(session.permissions).toContain('runs:read');
    const idleHours = (Date.parse(session.expires_at) - Date.now()) / 3_600_000;
    expect(idleHours).toBeGreaterThan(11.9);
    expect(idleHours).toBeLessThanOrEqual(12);
  });

  it('is independent of sessions at other ports of the same host, to which browsers send its cookie too', async () => {
    const send = (method: 'GET' | 'POST', host: string, cookie: string, payload?: object) =>
      api.server.inject({ method, url: '/api/v1/session', headers: { host, cookie }, ...(payload && { payload }) });
    const hosts = ['runlake.example', 'runlake.example:443', 'localhost:3000', '[::1]:3001'];
    const cookies: string[] = [];
    for (const host of hosts) {
      const { headers } = await send('POST', host, cookies.join('; '), { api_key: acme.adminKey });
      cookies.push(String(headers['set-cookie']).split(';')[0] ?? '');
    }
    expect(cookies.map((cookie) => cookie.split('=')[0])).toEqual([
      ...['runlake_session', 'runlake_session', 'runlake_session_3000', 'runlake_session_3001'],
    ]);
    const [, ...kept] = cookies;
    for (const host of hosts) expect((await send('GET', host, kept.join('; '))).statusCode, host).toBe(200);
    expect((await send('GET', 'localhost:3000', cookies[3] ?? '')).statusCode).toBe(401);
    expect(removeOwnCookies(['theme=dark', ...cookies].join('; '))).toBe('theme=dark');
  });

  it('marks the cookie as secure if the public URL is https', async () => {
    const secure = await startApi({ config: { publicUrl: 'https://runlake.example/api/v1' } });
    const { adminKey } = await addOrganization(secure.database, 'secure');
    const { headers } = await secure.server.inject({
      method: 'POST',
      url: '/api/v1/session',
      payload: { api_key: adminKey },
    });
    expect(headers['set-cookie']).toMatch(/; Secure$/);
    await secure.close();
  });

  it('stores neither the key nor the value of the cookie', async () => {
    const browser = await signIn(acme.adminKey);
    const rows = await api.database.query<{ row: string }>(
      `SELECT row_to_json(t)::text AS row FROM sign_in_tokens t
       UNION ALL SELECT row_to_json(s)::text FROM sign_in_sessions s`,
    );
    const stored = JSON.stringify(rows);
    expect(rows.length).toBeGreaterThan(1);
    expect(stored).not.toContain(browser.session);
    expect(stored).not.toContain(acme.adminKey);
    expect(stored).not.toContain(hashKey(acme.adminKey).toString('hex'));
  });

  it.each([
    ['a wrong key', { api_key: 'rlk_wrong' }, 401, 'API_KEY_INVALID'],
    ['no key', {}, 422, 'INVALID_REQUEST'],
    ['an empty key', { api_key: '' }, 422, 'INVALID_REQUEST'],
    ['a key that is not a text', { api_key: 1 }, 422, 'INVALID_REQUEST'],
    ['a key that is too long', { api_key: 'x'.repeat(513) }, 422, 'INVALID_REQUEST'],
  ])('refuses %s', async (_, payload, status, code) => {
    const answer = await api.server.inject({
      method: 'POST',
      url: '/api/v1/session',
      payload,
      remoteAddress: '192.0.2.1',
    });
    expect(answer.statusCode).toBe(status);
    expect(answer.json().code).toBe(code);
    expect(answer.headers['set-cookie']).toBeUndefined();
  });

  it('limits failures per address, and only those', async () => {
    const attempt = (api_key: string, remoteAddress: string) =>
      api.server.inject({ method: 'POST', url: '/api/v1/session', payload: { api_key }, remoteAddress });
    for (let i = 0; i < 30; i++) expect((await attempt(acme.adminKey, '192.0.2.2')).statusCode).toBe(201);
    for (let i = 0; i < 20; i++) expect((await attempt('rlk_guess', '192.0.2.2')).statusCode).toBe(401);
    const refused = await attempt(acme.adminKey, '192.0.2.2');
    expect(refused.statusCode).toBe(429);
    expect(refused.json().code).toBe('SIGN_IN_LIMITED');
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect((await attempt(acme.adminKey, '192.0.2.3')).statusCode).toBe(201);
  });

  it('counts for the rate limits of the key', async () => {
    const limited = await startApi({ config: { rateLimitPerKey: 3 } });
    const { adminKey } = await addOrganization(limited.database, 'limited');
    const attempt = async () => {
      const sent = { method: 'POST', url: '/api/v1/session', payload: { api_key: adminKey } } as const;
      const answer = await limited.server.inject(sent);
      return [answer.statusCode, answer.json().code];
    };
    const answers = await Promise.all(Array.from({ length: 30 }, attempt));
    expect(answers).toContainEqual([429, 'RATE_LIMITED']);
    const [entries] = await limited.database.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM audit_logs WHERE action = 'session.create'`,
    );
    expect(entries?.count).toBe(answers.filter(([status]) => status === 201).length);
    await limited.close();
  });

  it('limits failures per client behind a trusted proxy', async () => {
    const behind = await startApi({ config: { trustedProxies: '10.0.0.0/8, 192.0.2.7' } });
    const { adminKey } = await addOrganization(behind.database, 'behind');
    const attempt = async (api_key: string, forwarded: string, remoteAddress = '10.1.2.3') => {
      const headers = { 'x-forwarded-for': forwarded };
      const sent = { method: 'POST', url: '/api/v1/session', payload: { api_key }, headers, remoteAddress } as const;
      return (await behind.server.inject(sent)).statusCode;
    };
    for (let i = 0; i < 20; i++) expect(await attempt('rlk_guess', '198.51.100.1')).toBe(401);
    // The client can send the header, too, but the proxy appends the address that it sees.
    expect(await attempt(adminKey, '203.0.113.9, 198.51.100.1')).toBe(429);
    expect(await attempt(adminKey, '198.51.100.1, 192.0.2.7')).toBe(429);
    expect(await attempt(adminKey, '198.51.100.2')).toBe(201);
    // The header of others is ignored.
    for (let i = 0; i < 20; i++) expect(await attempt('rlk_guess', `198.51.100.${i}`, '192.0.2.8')).toBe(401);
    expect(await attempt(adminKey, '198.51.100.99', '192.0.2.8')).toBe(429);
    await behind.close();
  });
});

describe('a session', () => {
  it('stands for its key in all operations', async () => {
    const browser = await signIn(acme.workspaceKeys[0]);
    const made = await browser.send('POST', '/api/v1/sessions', { name: 'from-the-browser' });
    expect(made.statusCode).toBe(200);
    const listed = await browser.send('GET', '/api/v1/sessions?name=from-the-browser');
    expect(listed.json()).toMatchObject([{ name: 'from-the-browser', tenant_id: acme.workspaceIds[0] }]);
    const foreign = await browser.send('GET', '/api/v1/sessions', undefined, { 'x-tenant-id': other.workspaceIds[0] });
    expect([foreign.statusCode, foreign.json().code]).toEqual([403, 'WORKSPACE_FORBIDDEN']);
  });

  it('has no more permissions than its key', async () => {
    const reader = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const key = await addKey({ ...reader, workspaceIds: [acme.workspaceIds[0]], permissions: ['projects:read'] });
    const browser = await signIn(key);
    expect((await browser.send('GET', '/api/v1/session')).json().permissions).toEqual(['projects:read']);
    const refused = await browser.send('POST', '/api/v1/sessions', { name: 'forbidden' });
    expect([refused.statusCode, refused.json().code]).toEqual([403, 'FORBIDDEN']);
  });

  it.each(['POST', 'PATCH', 'PUT', 'DELETE'] as const)('needs its CSRF token for %s', async (method) => {
    const browser = await signIn(acme.adminKey);
    const url = method === 'POST' ? '/api/v1/sessions' : '/api/v1/session';
    const token = browser.csrfToken;
    for (const wrong of [undefined, '', 'x'.repeat(43), (await signIn(acme.adminKey)).csrfToken]) {
      browser.csrfToken = wrong;
      const answer = await browser.send(method, url, method === 'POST' ? { name: 'csrf' } : undefined);
      // The path has no operation with these methods.
      if (method === 'PATCH' || method === 'PUT') expect(answer.statusCode).toBe(405);
      else expect([answer.statusCode, answer.json().code]).toEqual([403, 'CSRF_TOKEN_REQUIRED']);
    }
    browser.csrfToken = token;
    expect((await browser.send('GET', '/api/v1/session')).statusCode).toBe(200);
  });

  it('is not used if the request has a key', async () => {
    const browser = await signIn(acme.adminKey);
    browser.csrfToken = undefined;
    const answer = await browser.send('POST', '/api/v1/sessions', { name: 'by-key' }, { 'x-api-key': other.adminKey });
    expect(answer.statusCode).toBe(200);
    expect(answer.json().tenant_id).toBe(other.workspaceIds[0]);
    const none = await browser.send('GET', '/api/v1/session', undefined, { 'x-api-key': other.adminKey });
    expect([none.statusCode, none.json().code]).toEqual([401, 'SESSION_REQUIRED']);
  });

  it('names a workspace for a key of several workspaces', async () => {
    const several = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const browser = await signIn(await addKey({ ...several, workspaceIds: acme.workspaceIds }));
    expect((await browser.send('GET', '/api/v1/session')).json().workspace.id).toBe(acme.workspaceIds[0]);
    expect((await browser.send('GET', '/api/v1/sessions')).json().code).toBe('WORKSPACE_REQUIRED');
  });
});

describe('the end of a session', () => {
  const ended = async (browser: Browser) => {
    const answer = await browser.send('GET', '/api/v1/sessions');
    expect([answer.statusCode, answer.json().code]).toEqual([401, 'SESSION_INVALID']);
  };

  it('comes with signing out, also for a copy of the cookie', async () => {
    const browser = await signIn(acme.adminKey);
    const copy = browser.session;
    const answer = await browser.send('DELETE', '/api/v1/session');
    expect(answer.statusCode).toBe(204);
    expect(answer.headers['set-cookie']).toMatch(/^runlake_session=; Path=\/; .*Max-Age=0/);
    expect(browser.session).toBeUndefined();
    browser.session = copy;
    await ended(browser);
  });

  it('comes at once with the revocation of the key', async () => {
    const key = await addKey({
      ...{ database: api.database, organizationId: acme.id, userId: acme.userId },
      defaultWorkspaceId: acme.workspaceIds[0],
    });
    const browser = await signIn(key);
    const keys = await api.ask(acme.adminKey, 'GET', '/api/v1/orgs/current/service-keys');
    const [{ id }] = (await api.database.query<{ id: string }>('SELECT id FROM api_keys WHERE hash = $1', [
      hashKey(key),
    ])) as [{ id: string }];
    expect(keys.body.map((each: { id: string }) => each.id)).toContain(id);
    expect((await api.ask(acme.adminKey, 'DELETE', `/api/v1/orgs/current/service-keys/${id}`)).status).toBe(200);
    await ended(browser);
  });

  it('comes at once with the removal of the member', async () => {
    const created = await api.ask(acme.adminKey, 'POST', '/api/v1/orgs/current/service-keys', {
      user_email: 'leaves@acme.example',
      default_workspace_id: acme.workspaceIds[0],
    });
    const browser = await signIn(created.body.key);
    expect((await browser.send('GET', '/api/v1/session')).json().user.email).toBe('leaves@acme.example');
    const removed = await api.ask(acme.adminKey, 'DELETE', `/api/v1/orgs/current/members/${created.body.user_id}`);
    expect(removed.status).toBeLessThan(300);
    await ended(browser);
  });

  it('comes with the expiry of the key', async () => {
    const soon = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const key = await addKey({
      ...soon,
      workspaceIds: [acme.workspaceIds[0]],
      expiresAt: new Date(Date.now() + 60_000).toISOString(),
    });
    const browser = await signIn(key);
    await api.database.execute(`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE hash = $1`, [
      hashKey(key),
    ]);
    api.services.authenticator.forgetAll();
    await ended(browser);
  });

  it('comes after 12 hours without a request, and after 7 days in any case', async () => {
    const browser = await signIn(acme.adminKey);
    await age('11 hours');
    expect((await browser.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
    await age('11 hours');
    expect((await browser.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
    await age('12 hours 1 minute');
    await ended(browser);
    const busy = await signIn(acme.adminKey);
    for (let used = 0; used < 15; used++) {
      await age('11 hours');
      expect((await busy.send('GET', '/api/v1/session')).statusCode).toBe(200);
    }
    await age('4 hours');
    await ended(busy);
  });

  it('reaches other processes within seconds', async () => {
    const elsewhere = createAuthenticator({ database: api.database, logger: api.services.exports.logger });
    const browser = await signIn(acme.adminKey);
    const session = browser.session as string;
    expect(await elsewhere.authenticate({ session })).toBeDefined();
    await browser.send('DELETE', '/api/v1/session');
    await expect
      .poll(
        () =>
          elsewhere.authenticate({ session }).then(
            () => 'accepted',
            ({ code }) => code,
          ),
        { timeout: 5_000 },
      )
      .toBe('SESSION_INVALID');
    await elsewhere.close();
  });
});

describe('the rotation of the cookie', () => {
  it('replaces an old value, and ends the former one once the browser has the new one', async () => {
    const browser = await signIn(acme.adminKey);
    const first = browser.session as string;
    expect((await browser.send('GET', '/api/v1/session')).headers['set-cookie']).toBeUndefined();
    await age('16 minutes');
    const rotated = await browser.send('GET', '/api/v1/session');
    expect(rotated.headers['set-cookie']).toMatch(/HttpOnly; SameSite=Strict/);
    expect(browser.session).not.toBe(first);
    // The token of the pages that are open stays the same.
    expect(rotated.json().csrf_token).toBe(browser.csrfToken);

    // The response may be lost: the former value works until the new one was used.
    const former = openBrowser(api.server);
    former.session = first;
    expect((await former.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
    expect((await browser.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
    expect((await former.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
    await api.database.execute(`UPDATE sign_in_tokens SET valid_until = valid_until - interval '61 seconds'`);
    api.services.authenticator.forgetSession(first);
    expect((await former.send('GET', '/api/v1/sessions')).json().code).toBe('SESSION_INVALID');
    expect((await browser.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
  });

  it('ends for a client that never uses a new value, whose session goes on', async () => {
    const browser = await signIn(acme.adminKey);
    const first = browser.session;
    await age('16 minutes');
    for (let read = 0; read < 120; read += 1) {
      browser.session = first;
      expect((await browser.send('GET', '/api/v1/session')).statusCode).toBe(200);
    }
    const [tokens] = await api.database.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM sign_in_tokens GROUP BY session_id ORDER BY count(*) DESC LIMIT 1`,
    );
    expect(tokens?.count).toBe(100);
  });

  it('leaves a valid value if the responses to two requests arrive in another order', async () => {
    const [browser, second] = [await signIn(acme.adminKey), openBrowser(api.server)];
    second.session = browser.session;
    await age('16 minutes');
    await browser.send('GET', '/api/v1/session');
    await second.send('GET', '/api/v1/session');
    expect(browser.session).not.toBe(second.session);
    expect((await second.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
    // Now the first response arrives, and the browser keeps its value.
    expect((await browser.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
    await api.database.execute(`UPDATE sign_in_tokens SET valid_until = valid_until - interval '61 seconds'`);
    api.services.authenticator.forgetAll();
    expect((await browser.send('GET', '/api/v1/sessions')).statusCode).toBe(200);
  });
});

describe('a link that signs in once', () => {
  const open = (token: string) =>
    api.server.inject({
      method: 'POST',
      url: '/api/v1/session/once',
      payload: { token },
      remoteAddress: '192.0.2.9',
    });

  it('works once, as the oldest admin key of the operator', async () => {
    const operatorKey = (await findOperatorKey(api.database)) as SignInKey;
    const token = api.services.signInLinks.issue(operatorKey);
    const answers = await Promise.all([open(token), open(token)]);
    expect(answers.map(({ statusCode }) => statusCode).sort()).toEqual([201, 401]);
    const opened = answers.find(({ statusCode }) => statusCode === 201);
    expect(opened?.json()).toMatchObject({ organization: { id: acme.id } });
    const again = await open(token);
    expect([again.statusCode, again.json().code]).toEqual([401, 'SIGN_IN_LINK_INVALID']);
  });

  it('does not work with another token, or after its key was revoked', async () => {
    expect((await open('unknown')).json().code).toBe('SIGN_IN_LINK_INVALID');
    const key = await addKey({ database: api.database, organizationId: acme.id, userId: acme.userId });
    const [{ id }] = (await api.database.query<{ id: string }>(
      'UPDATE api_keys SET revoked_at = now() WHERE hash = $1 RETURNING id',
      [hashKey(key)],
    )) as [{ id: string }];
    const answer = await open(api.services.signInLinks.issue({ keyId: id, organizationId: acme.id, userEmail: '' }));
    expect([answer.statusCode, answer.json().code]).toEqual([401, 'SESSION_INVALID']);
  });
});
