/**
 * Sign-in of members through OpenID Connect: authorization code flow with PKCE (RFC 7636), state and nonce, and the ID
 * token of the provider that the operator configured.
 */
import * as oauth from 'oauth4webapi';
import { PromiseCache } from '../../infra/cache/promise-cache.ts';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { openGuardedFetch } from '../../infra/network/guarded-fetch.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { providerTimeoutMs } from '../oauth/oauth-deps.ts';
import { toProviderError } from '../oauth/provider-error.ts';
import { type OidcMember, roles } from './roles.ts';

/** State of a sign-in that the browser keeps in a cookie while it is at the provider. It must be sealed. */
export interface PendingSignIn {
  readonly state: string;
  readonly nonce: string;
  readonly codeVerifier: string;
  readonly redirectUri: string;
}

export interface OidcClient {
  /**
   * @returns the URL at the provider that the browser must open.
   *
   * @throws OAUTH_PROVIDER_UNAVAILABLE and OAUTH_PROVIDER_REFUSED
   */
  start(redirectUri: string): Promise<{ readonly url: string; readonly pending: PendingSignIn }>;
  /**
   * Redeems the code in the query of the redirect.
   *
   * @throws OIDC_EMAIL_MISSING, OIDC_ROLE_MISSING, OAUTH_PROVIDER_UNAVAILABLE, OAUTH_PROVIDER_REFUSED
   */
  finish(query: URLSearchParams, pending: PendingSignIn): Promise<OidcMember>;
  close(): void;
}

const providerName = 'OpenID Connect';
const metadataCacheMs = 600_000;
const maxResponseBytes = 1024 * 1024;

/** Opens the client of the configured provider. Returns undefined if none is configured. */
export function openOidcClient(config: Config): OidcClient | undefined {
  const { oidcIssuer, oidcClientId, oidcClientSecret } = config;
  if (oidcIssuer === undefined || oidcClientId === undefined) return undefined;
  const issuer = new URL(oidcIssuer);
  const http = openGuardedFetch({
    // The operator, not a user, chooses the address.
    allowPrivate: true,
    refuse: (host, { about }) => runlakeError('OAUTH_ENDPOINT_NOT_ALLOWED', { host, range: about }),
    refuseSize: (host) => runlakeError('OAUTH_RESPONSE_TOO_LARGE', { host, limitBytes: maxResponseBytes }),
    maxConnections: 16,
    maxResponseBytes,
    timeoutMs: providerTimeoutMs,
    authorities: readTrustedAuthorities(config),
  });
  const fetchGuarded = (url: string, init: object) => http.fetch(url, init);
  const options = { [oauth.customFetch]: fetchGuarded, [oauth.allowInsecureRequests]: issuer.protocol === 'http:' };
  const client: oauth.Client = { client_id: oidcClientId };
  const authenticate = oidcClientSecret === undefined ? oauth.None() : oauth.ClientSecretPost(oidcClientSecret);
  const metadata = new PromiseCache<oauth.AuthorizationServer>({ max: 1, ttlMs: metadataCacheMs });

  const discover = async () => {
    const found = await metadata.get('provider', async () =>
      oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, { ...options, algorithm: 'oidc' })),
    );
    return found!;
  };
  const convertErrors = async <Result>(work: () => Promise<Result>): Promise<Result> => {
    try {
      return await work();
    } catch (error) {
      throw toProviderError(providerName, error);
    }
  };

  return {
    start: (redirectUri) =>
      convertErrors(async () => {
        const { authorization_endpoint: endpoint } = await discover();
        const pending = {
          state: oauth.generateRandomState(),
          nonce: oauth.generateRandomNonce(),
          codeVerifier: oauth.generateRandomCodeVerifier(),
          redirectUri,
        };
        const url = new URL(String(endpoint));
        const parameters = {
          ...{
            client_id: oidcClientId,
            redirect_uri: redirectUri,
            response_type: 'code',
            scope: 'openid email profile',
          },
          ...{ state: pending.state, nonce: pending.nonce, code_challenge_method: 'S256' },
          code_challenge: await oauth.calculatePKCECodeChallenge(pending.codeVerifier),
        };
        for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
        return { url: url.href, pending };
      }),
    finish: (query, { state, nonce, codeVerifier, redirectUri }) =>
      convertErrors(async () => {
        const server = await discover();
        const checked = oauth.validateAuthResponse(server, client, query, state);
        const response = await oauth.authorizationCodeGrantRequest(
          ...([server, client, authenticate, checked, redirectUri, codeVerifier, options] as const),
        );
        const expected = { expectedNonce: nonce, requireIdToken: true };
        const tokens = await oauth.processAuthorizationCodeResponse(server, client, response, expected);
        await oauth.validateApplicationLevelSignature(server, response, options);
        const idToken = oauth.getValidatedIdTokenClaims(tokens)!;
        // Many providers put only `sub` into the ID token.
        const more = server.userinfo_endpoint
          ? await oauth.processUserInfoResponse(
              ...([server, client, idToken.sub] as const),
              await oauth.userInfoRequest(server, client, tokens.access_token, options),
            )
          : {};
        return readMember([idToken, more], config);
      }),
    close: http.close,
  };
}

/** @param sources the ID token, and the userinfo, whose claims take precedence over those of the ID token. */
function readMember(sources: readonly Readonly<Record<string, unknown>>[], config: Config): OidcMember {
  const claims: Readonly<Record<string, unknown>> = Object.assign({}, ...sources);
  const { email, name } = claims;
  // Some providers do not send the claim, and some send it as text.
  const mayBeVerified = sources.every(
    ({ email_verified: value }) => value === undefined || value === true || value === 'true',
  );
  if (typeof email !== 'string' || !/^[^\s@]{1,254}@[^\s@]{1,254}$/.test(email) || !mayBeVerified)
    throw runlakeError('OIDC_EMAIL_MISSING');
  const claim = config.oidcRoleClaim;
  const values = new Set([claims[claim]].flat().map(String));
  const mapped = parseRoles(config.oidcRoles);
  // `roles` is in descending order, so this is the most powerful role that any of the values is mapped to.
  const role = roles.find((each) =>
    mapped.some(([value, given]) => given === each && (value === '*' || values.has(value))),
  );
  if (role === undefined) throw runlakeError('OIDC_ROLE_MISSING', { claim });
  return { email, fullName: typeof name === 'string' ? name.slice(0, 256) : undefined, role };
}

/** Parses `value=role,value=role`. By default, the values are the names of the roles. */
function parseRoles(text: string | undefined): (readonly [value: string, role: string])[] {
  if (text === undefined) return roles.map((role) => [role, role]);
  return text.split(',').map((pair) => {
    const at = pair.lastIndexOf('=');
    return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  });
}
