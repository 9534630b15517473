/** OAuth tokens of users, and their deletion. */
import { internals } from '../../infra/config/internals.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { revokeGrant } from './grant.ts';
import type { OAuthDeps } from './oauth-deps.ts';
import { type ProviderType, readProviderById } from './provider.ts';

/** A user of a workspace for whom a key acts. */
export interface TokenOwner {
  readonly workspaceId: string;
  readonly organizationId: string;
  readonly userId: string;
}

/** A token without its values. */
export interface TokenRecord {
  readonly id: string;
  readonly provider_id: string;
  readonly provider_account_label: string | null;
  readonly scopes: string[];
  readonly expires_at: string | null;
  readonly is_default: boolean;
  readonly created_at: string;
  readonly updated_at: string;
}

const columns = `t.id, p.provider_id, t.label AS provider_account_label, t.scopes, t.expires_at, t.is_default,
  t.created_at, t.updated_at`;

/** Identifies the row and the column of a token for the sealer. */
export const identifyToken = (id: string, kind: 'access' | 'refresh') => `oauth token ${id} ${kind}`;

/**
 * The columns with sealed tokens, for {@link resealColumns}. Code verifiers are not resealed, because they are used
 * within minutes.
 */
export const sealedOAuthTokenColumns = (['access', 'refresh'] as const).map((kind) => ({
  table: 'oauth_tokens',
  column: `sealed_${kind}_token`,
  keyColumns: ['id'],
  identify: (id: string) => identifyToken(id, kind),
}));

/** Lists the tokens of a user, newest first. @throws ANSWER_TOO_LARGE: a token may have many scopes */
export function listTokens(
  { database }: OAuthDeps,
  { workspaceId, userId }: TokenOwner,
  providerId?: string,
): Promise<TokenRecord[]> {
  return queryPageWithinLimit<TokenRecord>(
    database,
    `SELECT ${columns} FROM oauth_tokens t JOIN oauth_providers p ON p.id = t.provider
     WHERE t.workspace_id = $1 AND t.user_id = $2 AND ($3::text IS NULL OR p.provider_id = $3)
     ORDER BY t.created_at DESC, t.id`,
    [workspaceId, userId, providerId ?? null],
    internals.maxPageBytes,
  );
}

export async function hasToken({ database }: OAuthDeps, { workspaceId, userId }: TokenOwner, providerId: string) {
  const found = await database.query(
    `SELECT FROM oauth_tokens t JOIN oauth_providers p ON p.id = t.provider
     WHERE t.workspace_id = $1 AND t.user_id = $2 AND p.provider_id = $3 LIMIT 1`,
    [workspaceId, userId, providerId],
  );
  return found.length > 0;
}

/** Reads a token of a user. @throws NOT_FOUND */
export async function readToken(sql: Sql, { workspaceId, userId }: TokenOwner, tokenId: string): Promise<TokenRecord> {
  const [token] = await sql.query<TokenRecord>(
    `SELECT ${columns} FROM oauth_tokens t JOIN oauth_providers p ON p.id = t.provider
     WHERE t.workspace_id = $1 AND t.user_id = $2 AND t.id = $3`,
    [workspaceId, userId, tokenId],
  );
  if (token === undefined) throw createTokenNotFoundError();
  return token;
}

export interface TokenChange {
  /** Name of the account at the provider; null removes it, undefined keeps it. */
  readonly label?: string | null | undefined;
  readonly isDefault?: boolean | null | undefined;
}

/** Changes the label of a token, or makes it the default token of its user and provider, or not. @throws NOT_FOUND */
export async function changeToken(
  { database }: OAuthDeps,
  owner: TokenOwner,
  tokenId: string,
  { label, isDefault }: TokenChange,
): Promise<TokenRecord> {
  return database.transaction(async (tx) => {
    const [changed] = await tx.query<{ provider: string }>(
      `UPDATE oauth_tokens SET label = CASE WHEN $4 THEN $5 ELSE label END, is_default = coalesce($6, is_default),
         updated_at = now()
       WHERE workspace_id = $1 AND user_id = $2 AND id = $3 RETURNING provider`,
      [owner.workspaceId, owner.userId, tokenId, label !== undefined, label ?? null, isDefault ?? null],
    );
    if (changed === undefined) throw createTokenNotFoundError();
    if (isDefault === true) await makeOnlyDefault(tx, owner, changed.provider, tokenId);
    return readToken(tx, owner, tokenId);
  });
}

/** Makes all other tokens of a user and a provider non-default ones. */
export async function makeOnlyDefault(
  tx: Sql,
  { workspaceId, userId }: Pick<TokenOwner, 'workspaceId' | 'userId'>,
  provider: string,
  tokenId: string,
): Promise<void> {
  await tx.execute(
    `UPDATE oauth_tokens SET is_default = false
     WHERE workspace_id = $1 AND user_id = $2 AND provider = $3 AND id <> $4 AND is_default`,
    [workspaceId, userId, provider, tokenId],
  );
}

interface StoredToken {
  readonly id: string;
  readonly provider: string;
  readonly access: string;
  readonly refresh: string | null;
}

const storedColumns = 'id, provider, sealed_access_token AS access, sealed_refresh_token AS refresh';

/**
 * Revokes a token of a user at its provider, and deletes it. The token is deleted even if the provider cannot be
 * reached; a warning is logged then.
 *
 * @throws NOT_FOUND
 */
export async function deleteToken(deps: OAuthDeps, { workspaceId, userId }: TokenOwner, tokenId: string) {
  const [token] = await deps.database.query<StoredToken>(
    `SELECT ${storedColumns} FROM oauth_tokens WHERE workspace_id = $1 AND user_id = $2 AND id = $3`,
    [workspaceId, userId, tokenId],
  );
  if (token === undefined) throw createTokenNotFoundError();
  await revokeAndDelete(deps, workspaceId, token);
}

/** Deletes all tokens of a user for a provider, as {@link deleteToken} does. @returns their number. */
export async function deleteTokens(
  deps: OAuthDeps,
  { workspaceId, organizationId, userId }: TokenOwner,
  providerId: string,
): Promise<number> {
  const condition = `user_id = $3
    AND provider = (SELECT id FROM oauth_providers WHERE organization_id = $4 AND provider_id = $5)`;
  return revokeAndDeleteAll(deps, workspaceId, condition, [userId, organizationId, providerId]);
}

/** Whether any user of a workspace has a token of a provider of this type. */
export async function hasTokensOfType({ database }: OAuthDeps, workspaceId: string, type: ProviderType) {
  const sql = `SELECT FROM oauth_tokens
    WHERE workspace_id = $1 AND provider IN (SELECT id FROM oauth_providers WHERE provider_type = $2) LIMIT 1`;
  return (await database.query(sql, [workspaceId, type])).length > 0;
}

/**
 * Deletes the tokens of all users of a workspace for providers of this type, as {@link deleteToken} does.
 *
 * @returns their number.
 */
export async function deleteTokensOfType(deps: OAuthDeps, workspaceId: string, type: ProviderType): Promise<number> {
  const condition = 'provider IN (SELECT id FROM oauth_providers WHERE provider_type = $3)';
  return revokeAndDeleteAll(deps, workspaceId, condition, [type]);
}

/** Maximum number of tokens that one request revokes at the same time. */
const maxConcurrentRevocations = 16;

/**
 * Revokes and deletes the tokens of a workspace that meet a condition, some at a time: a token may be large.
 *
 * @param condition SQL whose parameters are `params`, from $3 on.
 * @returns their number.
 */
async function revokeAndDeleteAll(
  deps: OAuthDeps,
  workspaceId: string,
  condition: string,
  params: readonly string[],
): Promise<number> {
  const sql = `SELECT ${storedColumns} FROM oauth_tokens
    WHERE workspace_id = $1 AND id > $2 AND ${condition} ORDER BY id LIMIT ${maxConcurrentRevocations}`;
  let count = 0;
  for (let after: string = nilUuid; ; ) {
    const batch: StoredToken[] = await deps.database.query<StoredToken>(sql, [workspaceId, after, ...params]);
    await Promise.all(batch.map((token) => revokeAndDelete(deps, workspaceId, token)));
    count += batch.length;
    if (batch.length < maxConcurrentRevocations) return count;
    after = batch.at(-1)!.id;
  }
}

async function revokeAndDelete(deps: OAuthDeps, workspaceId: string, token: StoredToken): Promise<void> {
  const { database, secretSealer, logger } = deps;
  const provider = await readProviderById(database, token.provider);
  if (provider === undefined) return;
  try {
    const text =
      token.refresh === null
        ? secretSealer.open(token.access, identifyToken(token.id, 'access')).text
        : secretSealer.open(token.refresh, identifyToken(token.id, 'refresh')).text;
    // Servers that revoke a refresh token also end its access tokens (RFC 7009, 2.1).
    await revokeGrant(deps, provider, text);
  } catch (err) {
    if (!isRunlakeError(err)) throw err;
    logger.warn({ err, tokenId: token.id, provider: provider.provider_id }, 'OAuth token not revoked at its provider');
  }
  await database.execute('DELETE FROM oauth_tokens WHERE workspace_id = $1 AND id = $2', [workspaceId, token.id]);
}

export const createTokenNotFoundError = () => runlakeError('NOT_FOUND', { what: 'OAuth token' });
