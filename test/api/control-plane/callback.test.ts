import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { addKey } from '../start-api.ts';
import { startOAuthFlow } from './oauth-flow.ts';
import { client } from './oauth-server.ts';

const flow = forSuite(() => startOAuthFlow());

const usedUp = 'This link was used already, or is older than ten minutes: please start again.';
const wait = async (id: string) => (await flow.ask('GET', `/v2/auth/wait/${id}?timeout=0`)).body;
/** Starts an authentication of a user who has no token. */
const start = (user: string, more = {}) => flow.authenticate({ user_id: user, ...more });

describe('the redirect', () => {
  it('works once: the second request with the same state and code changes nothing', async () => {
    const { url, auth_id } = await start('once');
    const redirect = await flow.server.visit(url);
    expect(await flow.redirect(redirect)).toMatchObject({ status: 200 });
    const { token } = await wait(auth_id);
    const before = flow.server.grants.length;

    expect(await flow.redirect(redirect)).toEqual({ status: 400, sentence: usedUp });
    expect(flow.server.grants.length).toBe(before);
    expect(await wait(auth_id)).toEqual({ status: 'completed', token });
    expect(await flow.server.isActive(token)).toBe(true);
  });

  it('redeems a state once if two requests arrive at the same time', async () => {
    const { url } = await start('twice');
    const redirect = await flow.server.visit(url);
    const before = flow.server.grants.length;
    const pages = await Promise.all([flow.redirect(redirect), flow.redirect(redirect), flow.redirect(redirect)]);
    expect(pages.map(({ status }) => status).sort()).toEqual([200, 400, 400]);
    // The other requests do not reach the provider, which would revoke the token when it sees a code again.
    expect(flow.server.grants.slice(before)).toEqual(['authorization_code success']);
  });

  it('refuses a wrong state, and the right one still works', async () => {
    const { url, auth_id } = await start('wrong state');
    const redirect = await flow.server.visit(url);
    const forged = new URL(redirect);
    const state = redirect.searchParams.get('state') ?? '';
    for (const wrong of [`${auth_id}.AAAA`, auth_id, `${state}x`, state.toUpperCase(), ' ']) {
      forged.searchParams.set('state', wrong);
      expect(await flow.redirect(forged)).toEqual({ status: 400, sentence: usedUp });
    }
    forged.searchParams.delete('state');
    expect(await flow.redirect(forged)).toMatchObject({ status: 400 });
    expect(await flow.redirect(redirect)).toMatchObject({ status: 200 });
  });

  it('refuses a state of another provider, so that its code goes nowhere else', async () => {
    const { url } = await start('other provider');
    const redirect = await flow.server.visit(url);
    const other = new URL(redirect);
    other.pathname = other.pathname.replace(/mail$/, 'other');
    const before = flow.server.grants.length;
    expect(await flow.redirect(other)).toEqual({ status: 400, sentence: usedUp });
    expect(flow.server.grants.length).toBe(before);
    expect(await flow.redirect(redirect)).toMatchObject({ status: 200 });
  });

  it('stores no token of a user who is removed while the code is redeemed', async () => {
    const userId = randomUUID();
    await flow.api.database.execute('INSERT INTO users (id, organization_id, email) VALUES ($1, $2, $3)', [
      ...[userId, flow.organization.id, `${userId}@zebra.example`],
    ]);
    const slow = createServer(async (request, response) => {
      const body = await text(request);
      await flow.ask('DELETE', `/orgs/current/members/${userId}`);
      const headers = { 'content-type': String(request.headers['content-type']) };
      const granted = await fetch(flow.server.tokenUrl, { method: 'POST', headers, body });
      response.writeHead(granted.status, { 'content-type': 'application/json' }).end(await granted.text());
    });
    const port = await listenOnLoopback(slow);
    const created = await flow.ask('POST', '/v2/auth/providers', {
      ...{ provider_id: 'other', name: 'slow', client_id: client.id, client_secret: client.secret },
      ...{ auth_url: flow.server.authUrl, token_url: `http://127.0.0.1:${port}/token` },
    });
    const { url } = await start(userId, { provider: 'other' });
    const redirect = await flow.server.visit(url);
    expect(await flow.redirect(redirect)).toEqual({ status: 400, sentence: usedUp });
    expect(flow.server.grants.at(-1)).toBe('authorization_code success');
    expect(await flow.api.database.query('SELECT FROM oauth_tokens WHERE user_id = $1', [userId])).toEqual([]);
    slow.close();
    await flow.ask('DELETE', `/v2/auth/providers/${created.body.id}`);
  });

  it('refuses a code that the provider has seen before', async () => {
    const first = await start('first code');
    const redirect = await flow.server.visit(first.url);
    await flow.redirect(redirect);
    const second = await start('second code');
    const replayed = await flow.server.visit(second.url);
    replayed.searchParams.set('code', redirect.searchParams.get('code') ?? '');
    expect(await flow.redirect(replayed)).toEqual({
      status: 400,
      sentence: 'The provider did not confirm the access: please start again.',
    });
    expect(flow.server.grants.at(-1)).toBe('authorization_code error');
    expect(await wait(second.auth_id)).toEqual({ status: 'not_found', token: null });
    expect(await start('second code')).toMatchObject({ status: 'pending' });
  });

  it('does not accept a code that was issued for the state of another user', async () => {
    const victim = await start('victim');
    const attacker = await start('attacker');
    const ofVictim = await flow.server.visit(victim.url);
    const swapped = await flow.server.visit(attacker.url);
    swapped.searchParams.set('code', ofVictim.searchParams.get('code') ?? '');
    // PKCE: the code is bound to the verifier of the victim's authentication.
    expect(await flow.redirect(swapped)).toMatchObject({ status: 400 });
    expect(await start('attacker')).toMatchObject({ status: 'pending' });
  });

  it('ends ten minutes after the start', async () => {
    const { url, auth_id } = await start('late');
    const [row] = await flow.api.database.query<{ minutes: number }>(
      'SELECT extract(epoch FROM expires_at - created_at)::int / 60 AS minutes FROM oauth_authentications WHERE id = $1',
      [auth_id],
    );
    expect(row).toEqual({ minutes: 10 });
    const redirect = await flow.server.visit(url);
    await flow.api.database.execute('UPDATE oauth_authentications SET expires_at = now() WHERE id = $1', [auth_id]);
    expect(await flow.redirect(redirect)).toEqual({ status: 400, sentence: usedUp });
    expect(await wait(auth_id)).toEqual({ status: 'not_found', token: null });
  });

  it('tells that access was denied, and ends the authentication', async () => {
    const { url, auth_id } = await start('denied');
    const redirect = await flow.server.visit(url, 'deny');
    expect(redirect.searchParams.get('error')).toBe('access_denied');
    const page = await flow.redirect(redirect);
    expect(page).toEqual({ status: 400, sentence: 'You have not given access, and nothing was stored.' });
    expect(await wait(auth_id)).toEqual({ status: 'not_found', token: null });
    expect(await start('denied')).toMatchObject({ status: 'pending' });
  });

  it.each(['failing', 'silent'] as const)(
    'tells that the provider is %s',
    async (mode) => {
      const { url, auth_id } = await start(`provider ${mode}`);
      const redirect = await flow.server.visit(url);
      flow.server.mode = mode;
      const page = await flow.redirect(redirect).finally(() => {
        flow.server.mode = 'up';
      });
      expect(page).toEqual({ status: 400, sentence: 'The provider did not respond: please start again.' });
      expect(await wait(auth_id)).toEqual({ status: 'not_found', token: null });
    },
    20_000,
  );

  it('serves a page without script that browsers neither store nor frame', async () => {
    const { headers, body } = await flow.api.server.inject('/host-oauth-callback/mail?state=%3Cscript%3E&code=1');
    expect(headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    });
    expect(body).not.toMatch(/script/i);
  });

  it.each(['/v2/auth/callback/mail', '/api-host/v2/auth/callback/mail', '/v2/auth/setup/mail'])(
    'also works at %s',
    async (path) => {
      const { url } = await start(path);
      const redirect = await flow.server.visit(url);
      redirect.pathname = path;
      redirect.searchParams.set('installation_id', '7');
      expect(await flow.redirect(redirect)).toMatchObject({ status: 200 });
      expect(await start(path)).toMatchObject({ status: 'completed' });
    },
  );

  it('tells that the setup of an app was saved', async () => {
    const { body } = await flow.api.server.inject('/v2/auth/setup/mail?setup_action=update&installation_id=7');
    expect(body).toContain('The provider has saved the installation');
  });

  it('refuses parameters that no provider sends, in list form', async () => {
    const answer = await flow.api.server.inject('/v2/auth/callback/mail?state=a&state=b');
    expect(answer.statusCode).toBe(422);
    expect(answer.json().detail).toEqual([
      { loc: ['query', 'state'], msg: expect.any(String), type: expect.any(String) },
    ]);
  });
});

describe('finalizing with a key', () => {
  const finalize = (key: string, redirect: URL) =>
    flow.api.ask(key, 'POST', '/v2/auth/callback/mail', {
      code: redirect.searchParams.get('code'),
      state: redirect.searchParams.get('state'),
    });

  it('completes the authentication, once', async () => {
    const { url } = await start('finalized');
    const redirect = await flow.server.visit(url);
    expect(await finalize(flow.key, redirect)).toEqual({ status: 200, body: { status: 'completed' } });
    expect(await finalize(flow.key, redirect)).toMatchObject({ status: 400, body: { code: 'OAUTH_STATE_INVALID' } });
    expect(await start('finalized')).toMatchObject({ status: 'completed' });
  });

  it('is closed to other workspaces, and leaves the state usable', async () => {
    const { url } = await start('foreign');
    const redirect = await flow.server.visit(url);
    const { workspaceKeys } = flow.organization;
    expect(await finalize(workspaceKeys[1], redirect)).toMatchObject({ status: 400 });
    const readOnly = await addKey({
      ...{ database: flow.api.database, organizationId: flow.organization.id, userId: flow.organization.userId },
      ...{ workspaceIds: [flow.organization.workspaceIds[0]], readOnly: true },
    });
    expect(await finalize(readOnly, redirect)).toMatchObject({ status: 403 });
    expect(await finalize(workspaceKeys[0], redirect)).toMatchObject({ status: 200 });
  });
});
