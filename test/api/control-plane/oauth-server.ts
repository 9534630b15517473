/** An OAuth server (oidc-provider) on a loopback port, and a user with a browser. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type Provider from 'oidc-provider';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';

// oidc-provider needs this function of Node 22.
const urlClass = URL as unknown as { parse?: (url: string, base?: string) => URL | null };
urlClass.parse ??= (url, base) => (URL.canParse(url, base) ? new URL(url, base) : null);

export interface OAuthServer {
  readonly issuer: string;
  readonly authUrl: string;
  readonly tokenUrl: string;
  readonly revocationUrl: string;
  /** Requests to the token endpoint, by grant type and result. */
  readonly grants: readonly string[];
  /** How the server behaves: as it should, with status 503, or without any response. */
  mode: 'up' | 'failing' | 'silent';
  /** Lifetime of access tokens that are issued from now on. */
  accessTokenSeconds: number;
  refreshTokenSeconds: number;
  /** Whether clients get refresh tokens. */
  issuesRefreshTokens: boolean;
  /** Opens `url` in a browser and decides. Returns the URL to which the server redirects the browser. */
  visit(url: string, decision?: 'allow' | 'deny', grantedScopes?: readonly string[]): Promise<URL>;
  /** Whether the server accepts a token now. */
  isActive(token: string): Promise<boolean>;
  close(): Promise<void>;
}

export const client = { id: 'runlake-client', secret: 'client-secret-of-the-tests' } as const;

export interface OAuthServerOptions {
  readonly redirectUris: readonly string[];
  readonly authMethod?: 'client_secret_post' | 'client_secret_basic' | 'none';
  /** Claims of the user besides `sub`; read at each request. */
  readonly claims?: () => Readonly<Record<string, unknown>>;
  /** Claims that the ID token has instead of those. Default: only `sub`. */
  readonly idTokenClaims?: () => Readonly<Record<string, unknown>>;
  /** Further routes of the same HTTP server; returns whether it has responded. */
  readonly handle?: (request: IncomingMessage, response: ServerResponse) => boolean;
}

const scopes = ['openid', 'offline_access', 'mail.read', 'mail.send', 'calendar'];

export async function startOAuthServer(options: OAuthServerOptions): Promise<OAuthServer> {
  const { default: OidcProvider } = await import('oidc-provider');
  const http = createServer();
  const port = await listenOnLoopback(http);
  const issuer = `http://127.0.0.1:${port}`;
  const grants: string[] = [];
  let decision: 'allow' | 'deny' = 'allow';
  let granted: readonly string[] | undefined;

  const server: OAuthServer = {
    issuer,
    ...{ authUrl: `${issuer}/auth`, tokenUrl: `${issuer}/token`, revocationUrl: `${issuer}/token/revocation` },
    ...{ grants, mode: 'up', accessTokenSeconds: 3_600, refreshTokenSeconds: 86_400, issuesRefreshTokens: true },
    async visit(url, chosen = 'allow', grantedScopes) {
      decision = chosen;
      granted = grantedScopes;
      const cookies = new Map<string, string>();
      for (let target = new URL(url); ; ) {
        const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
        const response = await fetch(target, { redirect: 'manual', headers });
        const text = await response.text();
        for (const line of response.headers.getSetCookie()) {
          const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
          if (value === '') cookies.delete(name);
          else cookies.set(name, value);
        }
        const location = response.headers.get('location');
        // Only tests throw plain errors.
        if (location === null) throw new Error(`no redirect from ${target.href}: ${response.status} ${text}`);
        target = new URL(location, target);
        if (target.origin !== issuer) return target;
      }
    },
    async isActive(token) {
      const body = new URLSearchParams({ token, client_id: client.id, client_secret: client.secret });
      const response = await fetch(`${issuer}/token/introspection`, { method: 'POST', body });
      return ((await response.json()) as { active: boolean }).active;
    },
    async close() {
      http.closeAllConnections();
      http.close();
      await once(http, 'close');
    },
  };

  const provider = new OidcProvider(issuer, {
    clients: [
      {
        client_id: client.id,
        ...(options.authMethod === 'none' ? {} : { client_secret: client.secret }),
        token_endpoint_auth_method: options.authMethod ?? 'client_secret_post',
        redirect_uris: options.redirectUris,
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
      },
    ],
    scopes,
    claims: { email: ['email', 'email_verified'], profile: ['name', 'roles', 'groups'] },
    // Without `idTokenClaims`, the claims of the scopes are only in the response of the userinfo endpoint.
    conformIdTokenClaims: options.idTokenClaims === undefined,
    cookies: { keys: ['cookie key of the tests'] },
    features: {
      devInteractions: { enabled: false },
      introspection: { enabled: true },
      revocation: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({ scope: scopes.join(' '), accessTokenFormat: 'opaque' }),
        useGrantedResource: () => true,
      },
    },
    pkce: { required: () => true },
    ttl: {
      AccessToken: () => server.accessTokenSeconds,
      RefreshToken: () => server.refreshTokenSeconds,
      ...{ AuthorizationCode: 60, Grant: 86_400, Session: 3_600, Interaction: 600, IdToken: 3_600 },
    },
    issueRefreshToken: () => server.issuesRefreshTokens,
    rotateRefreshToken: true,
    findAccount: (_context: unknown, accountId: string) => ({
      accountId,
      claims: (use: string) => ({
        sub: accountId,
        ...(use === 'id_token' && options.idTokenClaims ? options.idTokenClaims() : options.claims?.()),
      }),
    }),
    interactions: { url: (_context: unknown, { uid }: { uid: string }) => `/interaction/${uid}` },
  });
  const record = (result: string) => (context: unknown) => {
    const { params } = (context as { oidc: { params?: { grant_type?: string } } }).oidc;
    grants.push(`${params?.grant_type} ${result}`);
  };
  provider.on('grant.success', record('success'));
  provider.on('grant.error', record('error'));

  const serve = provider.callback();
  http.on('request', (request, response) => {
    if (server.mode === 'silent') return;
    if (server.mode === 'failing') response.writeHead(503).end('<html>maintenance</html>');
    else if (options.handle?.(request, response)) return;
    else if (request.url?.startsWith('/interaction/')) {
      decide(provider, request, response, decision, granted).catch((error) =>
        response.writeHead(500).end(String(error)),
      );
    } else void serve(request, response);
  });
  return server;
}

async function decide(
  provider: Provider,
  request: IncomingMessage,
  response: ServerResponse,
  decision: 'allow' | 'deny',
  granted: readonly string[] | undefined,
): Promise<void> {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (decision === 'deny') {
    const error = { error: 'access_denied', error_description: 'denied by the user of the tests' };
    return provider.interactionFinished(request, response, error);
  }
  if (prompt.name === 'login') return provider.interactionFinished(request, response, { login: { accountId: 'anna' } });
  const grant = new provider.Grant({ accountId: session?.accountId, clientId: params.client_id });
  const asked = params.scope ?? '';
  const scope = granted?.join(' ') ?? asked;
  grant.addOIDCScope(scope);
  if (granted)
    grant.rejectOIDCScope(
      asked
        .split(' ')
        .filter((each) => !granted.includes(each))
        .join(' '),
    );
  if (params.resource !== undefined) grant.addResourceScope(params.resource, scope);
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}
