import { expect } from 'vitest';
import { type ApiUnderTest, addOrganization, type OrganizationUnderTest, startApi } from '../start-api.ts';
import { client, type OAuthServer, startOAuthServer } from './oauth-server.ts';

const publicUrl = 'https://runlake.example';

/** The API, an OAuth server that it can reach, and an organisation with that server as the provider `mail`. */
export interface OAuthFlow {
  readonly api: ApiUnderTest;
  readonly server: OAuthServer;
  readonly organization: OrganizationUnderTest;
  readonly key: string;
  /** Sends a request with the key of the organisation. */
  ask: (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string, payload?: object) => ReturnType<ApiUnderTest['ask']>;
  /** Asks for a token; checks the status 200. */
  // biome-ignore lint/suspicious/noExplicitAny: the tests check the fields.
  authenticate(more?: object): Promise<any>;
  /** Opens the redirect of the OAuth server. Returns the status and the sentence of the page. */
  redirect(url: URL): Promise<{ readonly status: number; readonly sentence: string }>;
  /** Asks for a token, gives access in the browser, and asks again. Returns the second response. */
  // biome-ignore lint/suspicious/noExplicitAny: the tests check the fields.
  grant(more?: object): Promise<any>;
  /** Lets the access token of a user expire, as far as Runlake knows. */
  expire(userId?: string): Promise<void>;
  close(): Promise<void>;
}

export async function startOAuthFlow(config: Parameters<typeof startApi>[0] = {}): Promise<OAuthFlow> {
  const api = await startApi({ ...config, config: { publicUrl, allowPrivateEndpoints: true, ...config.config } });
  const redirectUris = ['mail', 'other'].map((name) => `${publicUrl}/host-oauth-callback/${name}`);
  const server = await startOAuthServer({ redirectUris });
  const organization = await addOrganization(api.database, 'zebra');
  const key = organization.adminKey;
  const ask: OAuthFlow['ask'] = (method, url, payload) => api.ask(key, method, url, payload);
  const created = await ask('POST', '/v2/auth/providers', {
    provider_id: 'mail',
    name: 'Mail <b>',
    client_id: client.id,
    client_secret: client.secret,
    auth_url: `${server.authUrl}?prompt=consent`,
    token_url: server.tokenUrl,
    revocation_url: server.revocationUrl,
  });
  expect(created).toMatchObject({ status: 200 });
  const flow: OAuthFlow = {
    ...{ api, server, organization, key, ask },
    async authenticate(more = {}) {
      const payload = { user_id: 'anna', provider: 'mail', scopes: ['mail.read'], ...more };
      const { status, body } = await ask('POST', '/v2/auth/authenticate', payload);
      expect({ status, body }).toMatchObject({ status: 200 });
      return body;
    },
    async redirect(url) {
      const { statusCode, body } = await api.server.inject({ method: 'GET', url: url.pathname + url.search });
      return { status: statusCode, sentence: /<p>(.*)<\/p>/.exec(body)?.[1] ?? body };
    },
    async grant(more) {
      const { url } = await flow.authenticate(more);
      expect(await flow.redirect(await server.visit(url))).toMatchObject({ status: 200 });
      return flow.authenticate({ ...more, force_new: false });
    },
    async expire(userId = 'anna') {
      await api.database.execute(
        `UPDATE oauth_tokens SET expires_at = now() - interval '1 second', fresh_until = now() - interval '1 second'
         WHERE user_id = $1`,
        [userId],
      );
    },
    async close() {
      await api.close();
      await server.close();
    },
  };
  return flow;
}
