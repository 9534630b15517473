import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeEach, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { client, startOAuthServer } from '../../control-plane/oauth-server.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';
import { type Browser, openBrowser } from './browser.ts';

/** Sign-in through a real OpenID Connect provider (oidc-provider). */
const publicUrl = 'http://runlake.example';
const callback = `${publicUrl}/api/v1/session/oidc/callback`;
const provider = forSuite(() =>
  startOAuthServer({
    redirectUris: [callback],
    claims: () => claims,
    idTokenClaims: () => idTokenClaims,
  }),
);
let claims: Record<string, unknown>;
let idTokenClaims: Record<string, unknown>;
const api = forSuite(() => startApi({ config: configure(provider.issuer) }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const configure = (issuer: string, more: object = {}) => ({
  ...{ publicUrl, oidcIssuer: issuer, oidcClientId: client.id, oidcClientSecret: client.secret },
  ...{ oidcRoleClaim: 'groups', oidcRoles: 'ops=admin,staff=editor,*=viewer', ...more },
});
beforeEach(() => {
  claims = { email: 'anna@acme.example', email_verified: true, name: 'Anna', groups: ['staff'] };
  idTokenClaims = {};
});

/** Starts a provider whose token endpoint answers 429. */
async function startLimitingProvider() {
  let tokenRequests = 0;
  const server = createServer((request, response) => {
    const isToken = request.url === '/token';
    if (isToken) tokenRequests += 1;
    const endpoints = { authorization_endpoint: `${issuer}/authorize`, token_endpoint: `${issuer}/token` };
    response.writeHead(isToken ? 429 : 200, { 'content-type': 'application/json' });
    response.end(isToken ? '' : JSON.stringify({ issuer, ...endpoints, jwks_uri: `${issuer}/jwks` }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = () => new Promise((resolve) => server.close(resolve));
  return { issuer, requests: () => tokenRequests, close };
}

const start = async (at = api) => {
  const answer = await at.server.inject('/api/v1/session/oidc');
  expect(answer.statusCode).toBe(302);
  const cookie = String(answer.headers['set-cookie']);
  expect(cookie).toMatch(/^runlake_oidc=s1\.[\w.-]+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=600$/);
  return { url: String(answer.headers.location), cookie: cookie.split(';')[0] ?? '' };
};
const comeBack = (url: URL, cookie: string | undefined, at = api) =>
  at.server.inject({ url: url.pathname + url.search, headers: cookie === undefined ? {} : { cookie } });
/** Signs in. Returns the browser, or the location to which a failure redirects. */
const signIn = async (at = api): Promise<{ location: string; browser: Browser }> => {
  const { url, cookie } = await start(at);
  const answer = await comeBack(await provider.visit(url), cookie, at);
  expect(answer.statusCode).toBe(302);
  const browser = openBrowser(at.server);
  browser.session = /runlake_session=([^;,]+)/.exec([answer.headers['set-cookie']].flat().join(';'))?.[1];
  return { location: String(answer.headers.location), browser };
};
const getSession = async ({ browser }: { browser: Browser }) => (await browser.send('GET', '/api/v1/session')).json();

describe('a member', () => {
  it('signs in with the role that the claim gives, and is added once', async () => {
    const signedIn = await signIn();
    expect(signedIn.location).toBe('/');
    const session = await getSession(signedIn);
    expect(session).toMatchObject({
      organization: { id: acme.id },
      workspace: { id: acme.workspaceIds[0] },
      user: { email: 'anna@acme.example', full_name: 'Anna' },
      application: { oidc: true },
    });
    expect(session.permissions).toEqual(expect.arrayContaining(['runs:read', 'datasets:update', 'organization:read']));
    for (const withheld of ['api-keys:manage', 'secrets:manage', 'deployments:write', 'organization:manage'])
      expect(session.permissions).not.toContain(withheld);
    expect((await getSession(await signIn())).user.id).toBe(session.user.id);
    const keys = (await api.ask(acme.adminKey, 'GET', '/orgs/current/service-keys')).body;
    const own = keys.filter((key: { user_id: string }) => key.user_id === session.user.id);
    expect(own).toMatchObject([{ description: 'Sign-in through OpenID Connect as editor', short_key: 'sign-in' }]);
  });

  it('loses the sessions of a former role', async () => {
    const editor = await signIn();
    claims.groups = 'ops';
    const admin = await signIn();
    expect((await getSession(admin)).permissions).toContain('organization:manage');
    api.services.authenticator.forgetAll();
    expect((await getSession(editor)).code).toBe('SESSION_INVALID');
    claims.groups = [];
    const viewer = await getSession(await signIn());
    expect(viewer.permissions.every((name: string) => name.endsWith(':read'))).toBe(true);
    const { items } = (await api.ask(acme.adminKey, 'GET', '/audit-logs?action=member.role&limit=2')).body;
    expect(items.map(({ details }: { details: object }) => details)).toEqual([
      { from: 'admin', to: 'viewer' },
      { from: 'editor', to: 'admin' },
    ]);
    expect(items[0].actor).toMatchObject({ kind: 'session', name: 'anna@acme.example' });
  });

  it('loses the keys that exceed a lower role', async () => {
    claims = { ...claims, email: 'lowered@acme.example', groups: ['ops'] };
    const { user } = await getSession(await signIn());
    const [defaultWorkspaceId] = acme.workspaceIds;
    const owner = { database: api.database, organizationId: acme.id, userId: user.id, defaultWorkspaceId };
    const keys = {
      everything: await addKey({ ...owner, permissions: ['*'] }),
      writing: await addKey({ ...owner, permissions: ['datasets:read', 'datasets:create'] }),
      reading: await addKey({ ...owner, permissions: ['datasets:read'] }),
      readOnly: await addKey({ ...owner, permissions: ['*'], readOnly: true }),
    };
    const readValid = async () => {
      const answers = Object.entries(keys).map(async ([name, key]) => {
        const { status } = await api.ask(key, 'GET', '/datasets');
        return status === 401 || status === 403 ? [] : [name];
      });
      return (await Promise.all(answers)).flat();
    };
    expect(await readValid()).toEqual(Object.keys(keys));
    claims.groups = ['staff'];
    await signIn();
    expect(await readValid()).toEqual(['writing', 'reading', 'readOnly']);
    claims.groups = [];
    await signIn();
    expect(await readValid()).toEqual(['reading', 'readOnly']);
    claims.groups = ['staff'];
    await signIn();
    expect(await readValid()).toEqual(['reading', 'readOnly']);
    const { items } = (await api.ask(acme.adminKey, 'GET', '/audit-logs?action=api_key.revoke&limit=4')).body;
    // Each of the first two changes of the role revokes the key of the former role too.
    expect(items).toHaveLength(4);
    expect(items[3].actor).toMatchObject({ kind: 'session', name: 'lowered@acme.example' });
  });

  it('loses the sessions when an administrator removes the member', async () => {
    claims.email = 'leaves@acme.example';
    const signedIn = await signIn();
    const { user } = await getSession(signedIn);
    const removed = await api.ask(acme.adminKey, 'DELETE', `/orgs/current/members/${user.id}`);
    expect(removed.status).toBeLessThan(300);
    expect((await getSession(signedIn)).code).toBe('SESSION_INVALID');
  });
});

describe('a sign-in fails', () => {
  it.each([
    ['without an email address', { email: undefined }, 'OIDC_EMAIL_MISSING'],
    ['with an email address that is not verified', { email_verified: false }, 'OIDC_EMAIL_MISSING'],
    ['with an email address that is not verified, as text', { email_verified: 'false' }, 'OIDC_EMAIL_MISSING'],
    ['with an email address that may be verified', { email_verified: 0 }, 'OIDC_EMAIL_MISSING'],
  ])('%s', async (_, changed, code) => {
    claims = { ...claims, ...changed };
    const { location, browser } = await signIn();
    expect(location).toBe(`/signin?error=${code}`);
    expect(browser.session).toBeUndefined();
  });

  it('without a role', async () => {
    const strict = await startApi({ config: configure(provider.issuer, { oidcRoles: undefined }) });
    await addOrganization(strict.database, 'strict');
    expect((await signIn(strict)).location).toBe('/signin?error=OIDC_ROLE_MISSING');
    claims.groups = ['viewer', 'admin'];
    expect((await getSession(await signIn(strict))).permissions).toContain('organization:manage');
    await strict.close();
  });

  it('if the user denies it', async () => {
    const { url, cookie } = await start();
    const answer = await comeBack(await provider.visit(url, 'deny'), cookie);
    expect(answer.headers.location).toBe('/signin?error=OAUTH_PROVIDER_REFUSED');
  });

  it('with a code that was used, a forged state, or the cookie of another browser', async () => {
    const { url, cookie } = await start();
    const back = await provider.visit(url);
    const forged = new URL(back);
    forged.searchParams.set('state', 'forged');
    const failures = [
      await comeBack(forged, cookie),
      await comeBack(back, (await start()).cookie),
      await comeBack(back, undefined),
      await comeBack(back, 'runlake_oidc=s1.x.forged'),
    ];
    for (const { headers } of failures) {
      expect(headers.location).toMatch(/^\/signin\?error=(OAUTH_PROVIDER_REFUSED|OIDC_SIGN_IN_EXPIRED|SEAL_BROKEN)$/);
      expect(String(headers['set-cookie'])).not.toContain('runlake_session');
    }
    expect((await comeBack(back, cookie)).headers.location).toBe('/');
    expect((await comeBack(back, cookie)).headers.location).toBe('/signin?error=OAUTH_PROVIDER_REFUSED');
  });

  it('after too many failures of an address, without a request to the provider', async () => {
    const { url, cookie } = await start();
    const back = await provider.visit(url);
    const attempt = async (remoteAddress: string) => {
      const sent = { url: back.pathname + back.search, headers: { cookie }, remoteAddress };
      return (await api.server.inject(sent)).headers.location;
    };
    expect(await attempt('192.0.2.4')).toBe('/');
    for (let i = 0; i < 20; i++) expect(await attempt('192.0.2.4')).toBe('/signin?error=OAUTH_PROVIDER_REFUSED');
    expect(await attempt('192.0.2.4')).toBe('/signin?error=SIGN_IN_LIMITED');
    expect(await attempt('192.0.2.5')).toBe('/signin?error=OAUTH_PROVIDER_REFUSED');
  });

  it('after too many attempts of an address at the same time', async () => {
    const { url, cookie } = await start();
    const back = await provider.visit(url);
    await comeBack(back, cookie);
    const sent = { url: back.pathname + back.search, headers: { cookie }, remoteAddress: '192.0.2.6' };
    const attempts = Array.from({ length: 60 }, async () => (await api.server.inject(sent)).headers.location);
    const limited = (await Promise.all(attempts)).filter((location) => location === '/signin?error=SIGN_IN_LIMITED');
    expect(limited.length).toBeGreaterThanOrEqual(40);
  });

  it('after too many requests of an address that the provider does not answer, as if it limits them', async () => {
    const limiting = await startLimitingProvider();
    const at = await startApi({ config: configure(limiting.issuer) });
    const { url, cookie } = await start(at);
    const state = new URL(url).searchParams.get('state');
    const attempt = async () =>
      (await comeBack(new URL(`${callback}?code=any&state=${state}&iss=${limiting.issuer}`), cookie, at)).headers
        .location;
    for (let i = 0; i < 20; i++) expect(await attempt()).toBe('/signin?error=OAUTH_PROVIDER_UNAVAILABLE');
    expect(await attempt()).toBe('/signin?error=SIGN_IN_LIMITED');
    expect(limiting.requests()).toBe(20);
    await at.close();
    await limiting.close();
  });

  it('while the provider is down', async () => {
    const down = await startApi({ config: configure('http://127.0.0.1:9') });
    const answer = await down.server.inject('/api/v1/session/oidc');
    expect([answer.statusCode, answer.headers.location]).toEqual([302, '/signin?error=OAUTH_PROVIDER_UNAVAILABLE']);
    await down.close();
  });
});

it.each([
  [false, 'true', 'OIDC_EMAIL_MISSING'],
  ['false', true, 'OIDC_EMAIL_MISSING'],
  [false, undefined, 'OIDC_EMAIL_MISSING'],
  [true, 'false', 'OIDC_EMAIL_MISSING'],
  ['true', 'true', undefined],
  [undefined, undefined, undefined],
])('takes `email_verified` %j of the ID token and %j of the userinfo together', async (inToken, inUserinfo, code) => {
  idTokenClaims = { email: 'anna@acme.example', email_verified: inToken };
  claims.email_verified = inUserinfo;
  expect((await signIn()).location).toBe(code === undefined ? '/' : `/signin?error=${code}`);
});

it('says that it is not configured', async () => {
  const plain = await startApi();
  for (const path of ['oidc', 'oidc/callback?code=x']) {
    const answer = await plain.server.inject(`/api/v1/session/${path}`);
    expect([answer.statusCode, answer.json().code]).toEqual([404, 'OIDC_NOT_CONFIGURED']);
  }
  await plain.close();
});
