import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type OAuthFlow, startOAuthFlow } from './oauth-flow.ts';

let flow: OAuthFlow;

beforeAll(async () => {
  flow = await startOAuthFlow();
});
afterAll(() => flow.close());

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
