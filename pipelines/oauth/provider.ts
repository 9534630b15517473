/** OAuth providers of an organisation. */
import { internals } from '../../infra/config/internals.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';

export const providerTypes = ['microsoft', 'salesforce', 'slack'] as const;
export type ProviderType = (typeof providerTypes)[number];

export const clientAuthMethods = ['none', 'client_secret_basic', 'client_secret_post'] as const;
export type ClientAuthMethod = (typeof clientAuthMethods)[number];

/** A provider without its secret. */
export interface ProviderRecord {
  readonly id: string;
  readonly organization_id: string;
  readonly provider_id: string;
  readonly name: string;
  readonly client_id: string;
  readonly auth_url: string;
  readonly token_url: string;
  readonly revocation_url: string | null;
  readonly uses_pkce: boolean;
  readonly code_challenge_method: string | null;
  readonly provider_type: ProviderType | null;
  readonly mcp_server_url: string | null;
  readonly token_endpoint_auth_method: ClientAuthMethod;
  readonly is_dynamic_client: boolean;
  readonly redirect_uri: string;
  readonly created_at: string;
  readonly updated_at: string;
}

export const providerColumns = `p.id, p.organization_id, p.provider_id, p.name, p.client_id, p.auth_url, p.token_url,
  p.revocation_url, p.uses_pkce, CASE WHEN p.uses_pkce THEN 'S256' END AS code_challenge_method, p.provider_type,
  p.mcp_server_url, p.token_endpoint_auth_method, p.is_dynamic_client, p.redirect_uri, p.created_at, p.updated_at`;

/** Data of a provider that requests to it need. */
export interface Provider extends ProviderRecord {
  readonly sealed_client_secret: string | null;
  /** Issuer of the authorization server, if its metadata was read. */
  readonly issuer: string | null;
  /** Resource indicator (RFC 8707) for each request. */
  readonly resource: string | null;
}

const fullProviderColumns = `${providerColumns}, p.sealed_client_secret, p.issuer, p.resource`;

/** Identifies the row of a client secret for the sealer. */
export const identifySecret = (id: string) => `oauth provider ${id}`;

/** The column with the sealed client secrets, for {@link resealColumns}. */
export const sealedClientSecretColumn = {
  table: 'oauth_providers',
  column: 'sealed_client_secret',
  keyColumns: ['id'],
  identify: identifySecret,
};

/** Decrypts the client secret of a provider. @throws SEAL_KEY_UNKNOWN, SEAL_BROKEN */
export function openClientSecret(sealer: Sealer, provider: Provider): string | undefined {
  const { id, sealed_client_secret: sealed } = provider;
  return sealed === null ? undefined : sealer.open(sealed, identifySecret(id)).text;
}

/** Lists the providers of an organisation, oldest first. @throws ANSWER_TOO_LARGE */
export function listProviders(sql: Sql, organizationId: string): Promise<ProviderRecord[]> {
  return queryPageWithinLimit<ProviderRecord>(
    sql,
    `SELECT ${providerColumns} FROM oauth_providers p WHERE p.organization_id = $1 ORDER BY p.created_at, p.id`,
    [organizationId],
    internals.maxPageBytes,
  );
}

/** Reads a provider of an organisation by the name that its creator chose. @throws NOT_FOUND */
export async function readProvider(sql: Sql, organizationId: string, providerId: string): Promise<Provider> {
  const [provider] = await sql.query<Provider>(
    `SELECT ${fullProviderColumns} FROM oauth_providers p WHERE p.organization_id = $1 AND p.provider_id = $2`,
    [organizationId, providerId],
  );
  if (provider === undefined) throw createProviderNotFoundError();
  return provider;
}

/** Reads the provider of a token or of an authentication, which the caller has found in its own workspace. */
export async function readProviderById(sql: Sql, id: string): Promise<Provider | undefined> {
  const [provider] = await sql.query<Provider>(`SELECT ${fullProviderColumns} FROM oauth_providers p WHERE p.id = $1`, [
    id,
  ]);
  return provider;
}

export const createProviderNotFoundError = () => runlakeError('NOT_FOUND', { what: 'OAuth provider' });
