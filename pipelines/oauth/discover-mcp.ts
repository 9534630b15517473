/**
 * Finds the authorization server of an MCP server and registers Runlake there as a client. Sources: MCP 2025-06-18,
 * "Authorization"; RFC 9728 (protected resource metadata), RFC 8414 (server metadata), RFC 7591 (registration).
 */
import type { OAuthProtectedResourceMetadata } from '@modelcontextprotocol/sdk/shared/auth.js';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { OAuthDeps } from './oauth-deps.ts';
import { type ClientAuthMethod, clientAuthMethods, type ProviderRecord } from './provider.ts';
import { explain } from './provider-error.ts';
import { checkUrl, createProvider, requireFreeName } from './write-provider.ts';

export interface NewMcpProvider {
  readonly providerId: string;
  readonly name: string;
  readonly mcpServerUrl: string;
  readonly redirectUri: string;
}

/**
 * Creates a provider for an MCP server: asks the server for its authorization server, reads the metadata of that server
 * and registers a client.
 *
 * @throws INVALID_REQUEST with the field; CONFLICT if the organisation has a provider of that name; LIMIT_REACHED;
 *   OAUTH_DISCOVERY_FAILED with the step that failed; OAUTH_ENDPOINT_NOT_ALLOWED.
 */
export async function createMcpProvider(
  deps: OAuthDeps,
  organizationId: string,
  { providerId, name, mcpServerUrl, redirectUri }: NewMcpProvider,
): Promise<ProviderRecord> {
  checkUrl(deps, 'mcp_server_url', mcpServerUrl);
  await requireFreeName(deps, organizationId, providerId);
  const discovered = await discover(deps, mcpServerUrl);
  const client = await register(deps, mcpServerUrl, discovered, redirectUri);
  return createProvider(deps, organizationId, {
    ...{
      providerId,
      name,
      clientId: client.id,
      clientSecret: client.secret,
      authMethod: client.authMethod,
      redirectUri,
    },
    authUrl: discovered.authUrl,
    tokenUrl: discovered.tokenUrl,
    revocationUrl: discovered.revocationUrl,
    usesPkce: true,
    registration: { issuer: discovered.issuer, mcpServerUrl, resource: discovered.resource },
  });
}

interface Discovered {
  readonly issuer: string;
  readonly authUrl: string;
  readonly tokenUrl: string;
  readonly revocationUrl: string | undefined;
  readonly registrationUrl: string;
  readonly authMethods: readonly string[];
  readonly resource: string | undefined;
}

async function discover(deps: OAuthDeps, mcpServerUrl: string): Promise<Discovered> {
  const { discoverOAuthServerInfo, extractWWWAuthenticateParams } = await import(
    '@modelcontextprotocol/sdk/client/auth.js'
  );
  const fetchFn = deps.fetch;
  const { resourceMetadata, metadata } = await attempt(mcpServerUrl, 'the discovery', async () => {
    // A server that requires a token names its metadata in the response.
    const headers = { accept: 'application/json, text/event-stream' };
    const response = await fetchFn(mcpServerUrl, { headers }).catch((error: Error) => {
      // A server that requires no token for this request may answer with a stream that does not end.
      if (error.name === 'TimeoutError') return undefined;
      throw error;
    });
    const { resourceMetadataUrl } = response ? extractWWWAuthenticateParams(response) : {};
    const found = await discoverOAuthServerInfo(mcpServerUrl, {
      fetchFn,
      ...(resourceMetadataUrl && { resourceMetadataUrl }),
    });
    return { resourceMetadata: found.resourceMetadata, metadata: found.authorizationServerMetadata };
  });
  if (metadata === undefined) throw createDiscoveryError(mcpServerUrl, 'it has no metadata (RFC 8414)');
  if (metadata.registration_endpoint === undefined) {
    throw createDiscoveryError(mcpServerUrl, 'it has no endpoint for dynamic client registration (RFC 7591)');
  }
  if (metadata.code_challenge_methods_supported?.includes('S256') !== true) {
    throw createDiscoveryError(mcpServerUrl, 'it does not support PKCE with S256');
  }
  return {
    issuer: metadata.issuer,
    authUrl: metadata.authorization_endpoint,
    tokenUrl: metadata.token_endpoint,
    revocationUrl: 'revocation_endpoint' in metadata ? toText(metadata.revocation_endpoint) : undefined,
    registrationUrl: metadata.registration_endpoint,
    // Source of the default: RFC 8414, 2.
    authMethods: metadata.token_endpoint_auth_methods_supported ?? ['client_secret_basic'],
    resource: await chooseResource(mcpServerUrl, resourceMetadata),
  };
}

/** Returns the resource indicator: the one in the metadata, which must cover the URL of the server. RFC 9728, 3.3. */
async function chooseResource(
  mcpServerUrl: string,
  metadata: OAuthProtectedResourceMetadata | undefined,
): Promise<string | undefined> {
  if (metadata === undefined) return undefined;
  const { checkResourceAllowed } = await import('@modelcontextprotocol/sdk/shared/auth-utils.js');
  const { resource } = metadata;
  if (!checkResourceAllowed({ requestedResource: mcpServerUrl, configuredResource: resource })) {
    throw createDiscoveryError(mcpServerUrl, 'its protected resource metadata is that of another server');
  }
  return resource;
}

async function register(
  deps: OAuthDeps,
  mcpServerUrl: string,
  { issuer, registrationUrl, authMethods }: Discovered,
  redirectUri: string,
): Promise<{ readonly id: string; readonly secret: string | undefined; readonly authMethod: ClientAuthMethod }> {
  const oauth = await import('oauth4webapi');
  const authMethod = clientAuthMethods.find((method) => authMethods.includes(method));
  if (authMethod === undefined) {
    throw createDiscoveryError(mcpServerUrl, `it supports none of ${clientAuthMethods.join(', ')}`);
  }
  const client = await attempt(mcpServerUrl, 'the registration', async () => {
    const response = await oauth.dynamicClientRegistrationRequest(
      { issuer, registration_endpoint: registrationUrl },
      {
        client_name: 'Runlake',
        redirect_uris: [redirectUri],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: authMethod,
      },
      { [oauth.customFetch]: deps.fetch, [oauth.allowInsecureRequests]: deps.allowPrivate },
    );
    return oauth.processDynamicClientRegistrationResponse(response);
  });
  const chosen = clientAuthMethods.find((method) => method === client.token_endpoint_auth_method) ?? authMethod;
  const secret = toText(client.client_secret);
  return { id: client.client_id, secret, authMethod: secret === undefined ? 'none' : chosen };
}

const toText = (value: unknown) => (typeof value === 'string' ? value : undefined);

async function attempt<Result>(server: string, step: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (isRunlakeError(error)) throw error;
    // Errors of the SDK may contain text of the server.
    throw createDiscoveryError(server, `${step} failed: ${explain(error).reason}`);
  }
}

function createDiscoveryError(server: string, reason: string): RunlakeError {
  return runlakeError('OAUTH_DISCOVERY_FAILED', { server: new URL(server).host, reason });
}
