/**
 * Requests of OAuth 2.0 (RFC 6749) to the authorization server of a provider: authorization code with PKCE (RFC 7636),
 * refresh and revocation (RFC 7009).
 */
import * as oauth from 'oauth4webapi';
import type { OAuthDeps } from './oauth-deps.ts';
import { openClientSecret, type Provider, type ProviderType } from './provider.ts';
import { isInvalidGrant, toProviderError } from './provider-error.ts';

/** Tokens that a provider issued. */
export interface Grant {
  readonly accessToken: string;
  readonly refreshToken: string | undefined;
  /** Lifetime of the access token; undefined if the provider sent none. */
  readonly lifetimeSeconds: number | undefined;
  /** Granted scopes; undefined if the provider sent none, which means the requested scopes. */
  readonly scopes: readonly string[] | undefined;
}

/**
 * Scopes that change the response instead of the access, and that some providers do not repeat among the granted ones.
 */
const protocolScopes = ['openid', 'offline_access', 'refresh_token'];

/**
 * Returns the scopes of a new token: those that the provider granted, or `asked` if it named none. Requested scopes of
 * the protocol count as granted.
 */
export function chooseScopes({ scopes }: Grant, asked: readonly string[]): string[] {
  const unrepeated = asked.filter((scope) => protocolScopes.includes(scope));
  return [...new Set(scopes === undefined ? asked : [...scopes, ...unrepeated])];
}

interface Quirks {
  /** Scopes without which the provider issues no refresh token. */
  readonly refreshScopes?: readonly string[];
  /** Name and separator of the parameter for scopes of a user. */
  readonly scopeParameter?: readonly [name: string, separator: string];
  /** Name of the object in a token response that contains the tokens of the user. */
  readonly userField?: string;
}

/** Differences from the standard, by `provider_type`. Sources: documentation of the providers. */
const quirksByType: Readonly<Record<ProviderType, Quirks>> = {
  microsoft: { refreshScopes: ['offline_access'] },
  salesforce: { refreshScopes: ['refresh_token'] },
  slack: { scopeParameter: ['user_scope', ','], userField: 'authed_user' },
};

const getQuirks = ({ provider_type: type }: Provider): Quirks => (type === null ? {} : quirksByType[type]);

export interface AuthorizationRequest {
  /** URL that the user opens. */
  readonly url: string;
  /** Secret that redeems the code; undefined without PKCE. */
  readonly codeVerifier: string | undefined;
}

/** Builds the URL at which a user gives access. Parameters in `auth_url` are kept. */
export async function buildAuthorizationRequest(
  provider: Provider,
  { state, scopes }: { readonly state: string; readonly scopes: readonly string[] },
): Promise<AuthorizationRequest> {
  const { refreshScopes = [], scopeParameter: [scopeName, separator] = ['scope', ' '] } = getQuirks(provider);
  const codeVerifier = provider.uses_pkce ? oauth.generateRandomCodeVerifier() : undefined;
  const url = new URL(provider.auth_url);
  const wanted = [...new Set([...scopes, ...refreshScopes])].join(separator);
  const parameters = {
    response_type: 'code',
    client_id: provider.client_id,
    redirect_uri: provider.redirect_uri,
    state,
    ...(wanted !== '' && { [scopeName]: wanted }),
    ...(provider.resource !== null && { resource: provider.resource }),
    ...(codeVerifier !== undefined && {
      code_challenge: await oauth.calculatePKCECodeChallenge(codeVerifier),
      code_challenge_method: 'S256',
    }),
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return { url: url.href, codeVerifier };
}

/**
 * Redeems an authorization code.
 *
 * @param parameters Query of the redirect, whose state has been checked.
 * @throws OAUTH_PROVIDER_UNAVAILABLE, OAUTH_PROVIDER_REFUSED, OAUTH_ENDPOINT_NOT_ALLOWED
 */
export async function redeemCode(
  deps: OAuthDeps,
  provider: Provider,
  parameters: Readonly<Record<string, string>>,
  { codeVerifier, redirectUri }: { readonly codeVerifier: string | undefined; readonly redirectUri: string },
): Promise<Grant> {
  const { server, client, authenticate, options } = prepare(deps, provider);
  const query = new URLSearchParams(parameters);
  // Without metadata the issuer is not known. The redirect URI, which is different for each provider, then prevents
  // that the code of one provider is sent to another (RFC 9700, 4.4.2).
  if (provider.issuer === null) query.delete('iss');
  return send(provider, async () => {
    const checked = oauth.validateAuthResponse(server, client, query, oauth.skipStateCheck);
    const verifier = codeVerifier ?? oauth.nopkce;
    const response = await oauth.authorizationCodeGrantRequest(
      ...([server, client, authenticate, checked, redirectUri, verifier, options] as const),
    );
    const standard = await toStandardResponse(response, getQuirks(provider));
    return toGrant(await oauth.processAuthorizationCodeResponse(server, client, standard));
  });
}

/**
 * Gets a new access token. Returns undefined if the refresh token is expired or revoked.
 *
 * @throws OAUTH_PROVIDER_UNAVAILABLE, OAUTH_PROVIDER_REFUSED, OAUTH_ENDPOINT_NOT_ALLOWED
 */
export async function refreshGrant(
  deps: OAuthDeps,
  provider: Provider,
  refreshToken: string,
): Promise<Grant | undefined> {
  const { server, client, authenticate, options } = prepare(deps, provider);
  return send(provider, async () => {
    const response = await oauth.refreshTokenGrantRequest(server, client, authenticate, refreshToken, options);
    try {
      const standard = await toStandardResponse(response, getQuirks(provider));
      return toGrant(await oauth.processRefreshTokenResponse(server, client, standard));
    } catch (error) {
      if (isInvalidGrant(error)) return undefined;
      throw error;
    }
  });
}

/**
 * Revokes a token at the provider. Returns false if the provider has no endpoint for that.
 *
 * @throws OAUTH_PROVIDER_UNAVAILABLE, OAUTH_PROVIDER_REFUSED, OAUTH_ENDPOINT_NOT_ALLOWED
 */
export async function revokeGrant(deps: OAuthDeps, provider: Provider, token: string): Promise<boolean> {
  if (provider.revocation_url === null) return false;
  const { server, client, authenticate, options } = prepare(deps, provider);
  return send(provider, async () => {
    const response = await oauth.revocationRequest(server, client, authenticate, token, options);
    await oauth.processRevocationResponse(response);
    return true;
  });
}

function prepare(deps: OAuthDeps, provider: Provider) {
  const { token_url, revocation_url, resource, token_endpoint_auth_method: method } = provider;
  const server: oauth.AuthorizationServer = {
    issuer: provider.issuer ?? new URL(token_url).origin,
    token_endpoint: token_url,
    ...(revocation_url !== null && { revocation_endpoint: revocation_url }),
  };
  const secret = openClientSecret(deps.secretSealer, provider);
  const options = {
    [oauth.customFetch]: deps.fetch,
    [oauth.allowInsecureRequests]: deps.allowPrivate,
    ...(resource !== null && { additionalParameters: { resource } }),
  };
  const authenticate =
    method === 'none' || secret === undefined
      ? oauth.None()
      : method === 'client_secret_basic'
        ? oauth.ClientSecretBasic(secret)
        : oauth.ClientSecretPost(secret);
  return { server, client: { client_id: provider.client_id }, authenticate, options };
}

async function send<Result>(provider: Provider, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    throw toProviderError(provider.provider_id, error);
  }
}

/**
 * Removes the ID token, which nothing reads, so that neither its issuer nor the clock of the provider matters; and moves
 * the tokens of the user to their standard place.
 */
async function toStandardResponse(response: Response, { userField }: Quirks): Promise<Response> {
  if (!response.ok) return response;
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => undefined);
  if (typeof body !== 'object' || body === null) return response;
  const { id_token: _unused, ...fields } = body as Readonly<Record<string, unknown>>;
  const ofUser = userField === undefined ? undefined : fields[userField];
  const tokens = typeof ofUser === 'object' && ofUser !== null ? { ...ofUser, token_type: 'bearer' } : fields;
  // Some servers report errors with status 200.
  const status = typeof fields.error === 'string' ? 400 : response.status;
  return new Response(JSON.stringify(tokens), { status, headers: { 'content-type': 'application/json' } });
}

function toGrant({ access_token, refresh_token, expires_in, scope }: oauth.TokenEndpointResponse): Grant {
  return {
    accessToken: access_token,
    refreshToken: refresh_token,
    lifetimeSeconds: expires_in,
    // The standard separator is a space; some servers use commas.
    scopes: scope === undefined ? undefined : scope.split(/[\s,]+/).filter((each) => each !== ''),
  };
}
