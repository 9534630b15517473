import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { enforceLimit } from '../tenants/enforce-limit.ts';
import { createFieldError, type OAuthDeps } from './oauth-deps.ts';
import {
  type ClientAuthMethod,
  createProviderNotFoundError,
  identifySecret,
  type ProviderRecord,
  type ProviderType,
  providerColumns,
  readProvider,
} from './provider.ts';

export interface NewProvider {
  readonly providerId: string;
  readonly name: string;
  readonly clientId: string;
  readonly clientSecret?: string | null | undefined;
  readonly authUrl: string;
  readonly tokenUrl: string;
  readonly revocationUrl?: string | null | undefined;
  readonly usesPkce?: boolean | null | undefined;
  readonly providerType?: ProviderType | null | undefined;
  /** Default: client_secret_post if there is a secret. */
  readonly authMethod?: ClientAuthMethod | null | undefined;
  /** The URI to which the provider sends users back. */
  readonly redirectUri: string;
  /** Data of a client that Runlake registered. */
  readonly registration?: {
    readonly issuer: string;
    readonly mcpServerUrl: string;
    readonly resource: string | undefined;
  };
}

const countProvidersSql = 'SELECT count(*) AS count FROM oauth_providers WHERE organization_id = $1';

/**
 * Creates a provider. Its URLs are checked, but no request is sent to them.
 *
 * @throws INVALID_REQUEST with the field; CONFLICT if the organisation has a provider of that name; LIMIT_REACHED.
 */
export async function createProvider(
  deps: OAuthDeps,
  organizationId: string,
  provider: NewProvider,
): Promise<ProviderRecord> {
  checkUrl(deps, 'auth_url', provider.authUrl);
  checkUrl(deps, 'token_url', provider.tokenUrl);
  if (provider.revocationUrl != null) checkUrl(deps, 'revocation_url', provider.revocationUrl);
  const secret = provider.clientSecret ?? undefined;
  const authMethod = provider.authMethod ?? (secret === undefined ? 'none' : 'client_secret_post');
  if (authMethod !== 'none' && secret === undefined) {
    throw createFieldError('client_secret', `is required with token_endpoint_auth_method '${authMethod}'`);
  }
  const usesPkce = provider.usesPkce ?? true;
  checkPkce(usesPkce, authMethod);
  const id = randomUUID();
  const { registration } = provider;
  return deps.database.transaction(async (tx) => {
    const [made] = await tx.query<ProviderRecord>(
      `INSERT INTO oauth_providers AS p (id, organization_id, provider_id, name, client_id, sealed_client_secret, auth_url,
         token_url, revocation_url, issuer, mcp_server_url, resource, uses_pkce, provider_type,
         token_endpoint_auth_method, redirect_uri, is_dynamic_client)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
       ON CONFLICT (organization_id, provider_id) DO NOTHING RETURNING ${providerColumns}`,
      [
        ...[id, organizationId, provider.providerId, provider.name, provider.clientId],
        secret === undefined ? null : deps.secretSealer.seal(secret, identifySecret(id)),
        ...[provider.authUrl, provider.tokenUrl, provider.revocationUrl ?? null],
        ...[registration?.issuer ?? null, registration?.mcpServerUrl ?? null, registration?.resource ?? null],
        ...[usesPkce, provider.providerType ?? null, authMethod, provider.redirectUri, registration !== undefined],
      ],
    );
    if (made === undefined) throw createNameConflict();
    const limit = { max: deps.limits.maxOAuthProviders, countSql: countProvidersSql, what: 'OAuth providers' };
    await enforceLimit(tx, 'organization', organizationId, limit);
    return made;
  });
}

/** Checks that the name of a new provider is free. @throws CONFLICT */
export async function requireFreeName({ database }: OAuthDeps, organizationId: string, providerId: string) {
  const sql = 'SELECT FROM oauth_providers WHERE organization_id = $1 AND provider_id = $2';
  if ((await database.query(sql, [organizationId, providerId])).length > 0) throw createNameConflict();
}

export interface ProviderChange {
  readonly name?: string | null | undefined;
  readonly clientId?: string | null | undefined;
  readonly clientSecret?: string | null | undefined;
  readonly authUrl?: string | null | undefined;
  readonly tokenUrl?: string | null | undefined;
  readonly revocationUrl?: string | null | undefined;
  readonly usesPkce?: boolean | null | undefined;
  /** New redirect URI; not used for clients that Runlake registered, because the provider knows the first one. */
  readonly redirectUri: string;
}

/**
 * Changes a provider; fields that are absent or null stay unchanged. Its tokens stay, and the next refresh uses the new
 * values.
 *
 * @throws NOT_FOUND; INVALID_REQUEST with the field.
 */
export async function updateProvider(
  deps: OAuthDeps,
  organizationId: string,
  providerId: string,
  change: ProviderChange,
): Promise<ProviderRecord> {
  const provider = await readProvider(deps.database, organizationId, providerId);
  requireKnownOrigin('token_url', change.tokenUrl, [provider.token_url]);
  requireKnownOrigin('revocation_url', change.revocationUrl, [provider.token_url, provider.revocation_url]);
  if (change.authUrl != null) checkUrl(deps, 'auth_url', change.authUrl);
  if (change.tokenUrl != null) checkUrl(deps, 'token_url', change.tokenUrl);
  if (change.revocationUrl != null) checkUrl(deps, 'revocation_url', change.revocationUrl);
  const method = provider.token_endpoint_auth_method;
  // A public client that gets a secret becomes a confidential one.
  const authMethod = method === 'none' && change.clientSecret != null ? 'client_secret_post' : method;
  checkPkce(change.usesPkce ?? provider.uses_pkce, authMethod);
  const [changed] = await deps.database.query<ProviderRecord>(
    `UPDATE oauth_providers AS p SET name = coalesce($3, name), client_id = coalesce($4, client_id),
       sealed_client_secret = coalesce($5, sealed_client_secret), auth_url = coalesce($6, auth_url),
       token_url = coalesce($7, token_url), revocation_url = coalesce($8, revocation_url),
       uses_pkce = coalesce($9, uses_pkce), token_endpoint_auth_method = $10,
       redirect_uri = CASE WHEN is_dynamic_client THEN redirect_uri ELSE $11 END,
       issuer = CASE WHEN $6 IS NULL AND $7 IS NULL THEN issuer END, updated_at = now()
     WHERE organization_id = $1 AND provider_id = $2 RETURNING ${providerColumns}`,
    [
      ...[organizationId, providerId, change.name ?? null, change.clientId ?? null],
      change.clientSecret == null ? null : deps.secretSealer.seal(change.clientSecret, identifySecret(provider.id)),
      ...[change.authUrl ?? null, change.tokenUrl ?? null, change.revocationUrl ?? null, change.usesPkce ?? null],
      ...[authMethod, change.redirectUri],
    ],
  );
  if (changed === undefined) throw createProviderNotFoundError();
  return changed;
}

/**
 * Deletes a provider with its secret, its tokens and its pending authentications. The tokens are not revoked at the
 * provider.
 *
 * @throws NOT_FOUND
 */
export async function deleteProvider({ database }: OAuthDeps, organizationId: string, providerId: string) {
  const sql = 'DELETE FROM oauth_providers WHERE organization_id = $1 AND provider_id = $2';
  if ((await database.execute(sql, [organizationId, providerId])) === 0) throw createProviderNotFoundError();
}

/**
 * Checks the URL of a provider. The addresses of its host are checked for each request.
 *
 * @throws INVALID_REQUEST with the field.
 */
export function checkUrl({ allowPrivate }: Pick<OAuthDeps, 'allowPrivate'>, field: string, text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw createFieldError(field, 'must be an https URL');
  if (url.protocol === 'http:' && !allowPrivate) throw createFieldError(field, 'must start with https://');
  if (url.username !== '' || url.password !== '') throw createFieldError(field, 'must not contain credentials');
  if (url.hash !== '') throw createFieldError(field, 'must not contain a fragment');
}

/**
 * Checks that a change does not redirect secrets to another host. The client secret and the refresh tokens of users are
 * sent to these URLs, and a caller who may change a provider may not read them.
 *
 * @throws INVALID_REQUEST with the field.
 */
function requireKnownOrigin(field: string, changed: string | null | undefined, known: readonly (string | null)[]) {
  if (changed == null) return;
  const origins = known.flatMap((url) => (url === null ? [] : [new URL(url).origin]));
  if (URL.canParse(changed) && origins.includes(new URL(changed).origin)) return;
  throw createFieldError(field, `must begin with ${origins[0]}; create another provider for another server`);
}

/** Without a secret, only PKCE proves that the client that redeems a code is the one that asked for it. */
function checkPkce(usesPkce: boolean, method: ClientAuthMethod): void {
  if (!usesPkce && method === 'none') {
    throw createFieldError('uses_pkce', 'must be true for a client without a secret');
  }
}

const createNameConflict = () =>
  runlakeError('CONFLICT', { reason: 'A provider with this provider_id already exists.' });
