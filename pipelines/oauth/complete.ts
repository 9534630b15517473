/**
 * Completes an authentication when the provider sends the user back.
 *
 * Invariant: a state is used at most once, and its code is redeemed for the user for whom the state was made.
 *
 *   1. One statement finds the pending authentication by the hash of its state and removes the hash, so that a second
 *      request with the same state finds nothing. The name of the provider in the path must be the right one.
 *   2. If the provider reports an error, the authentication fails.
 *   3. The code is redeemed at the provider with the code verifier.
 *   4. One transaction stores the token, connects it with the agent and completes the authentication.
 *
 * After a crash between steps 1 and 4 the authentication stays pending until it expires, and the user starts again: the
 * provider accepts a code only once.
 */
import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { countInWorkspaces, enforceLimit } from '../tenants/enforce-limit.ts';
import { connectToken } from './agent-connections.ts';
import { findCandidates, hashState, identifyVerifier } from './authenticate.ts';
import { chooseScopes, type Grant, redeemCode } from './grant.ts';
import type { OAuthDeps } from './oauth-deps.ts';
import { type Provider, readProviderById } from './provider.ts';
import { makeOnlyDefault } from './token.ts';
import { buildExpirySql, sealGrant } from './use-token.ts';

/** Parameters with which a provider redirects the user. Each appears at most once. RFC 6749, 4.1.2; RFC 9207. */
export interface CallbackParameters {
  readonly state: string;
  readonly code?: string | undefined;
  readonly error?: string | undefined;
  readonly iss?: string | undefined;
}

interface PendingAuthentication {
  readonly id: string;
  readonly workspaceId: string;
  readonly provider: string;
  readonly userId: string;
  readonly agentId: string | null;
  readonly scopes: readonly string[];
  readonly isDefault: boolean;
  readonly forceNew: boolean;
  readonly replacedTokenId: string | null;
  readonly verifier: string | null;
  readonly redirectUri: string;
}

/**
 * Redeems the code of a redirect and stores the token. Returns the name of the provider.
 *
 * @param workspaceId Workspace of the caller, if the request has a key.
 * @throws OAUTH_STATE_INVALID, OAUTH_CONSENT_DENIED, LIMIT_REACHED; errors of {@link redeemCode}.
 */
export async function completeAuthentication(
  deps: OAuthDeps,
  providerId: string,
  parameters: CallbackParameters,
  workspaceId?: string,
): Promise<string> {
  const pending = await takePending(deps.database, providerId, parameters.state, workspaceId);
  const provider = await readProviderById(deps.database, pending.provider);
  if (provider === undefined) throw runlakeError('OAUTH_STATE_INVALID');
  try {
    if (parameters.error !== undefined || parameters.code === undefined) throw createDenial(provider, parameters);
    const { code, iss } = parameters;
    const verifier = pending.verifier && deps.secretSealer.open(pending.verifier, identifyVerifier(pending.id)).text;
    const grant = await redeemCode(...([deps, provider, { code, ...(iss !== undefined && { iss }) }] as const), {
      codeVerifier: verifier ?? undefined,
      redirectUri: pending.redirectUri,
    });
    await deps.database.transaction((tx) => storeGrant(deps, tx, pending, grant));
  } catch (error) {
    await deps.database.execute(`UPDATE oauth_authentications SET status = 'failed' WHERE id = $1`, [pending.id]);
    throw error;
  }
  return provider.name;
}

async function takePending(
  sql: Sql,
  providerId: string,
  state: string,
  workspaceId: string | undefined,
): Promise<PendingAuthentication> {
  const [pending] = await sql.query<PendingAuthentication>(
    `UPDATE oauth_authentications a SET state_hash = NULL
     FROM oauth_providers p, workspaces w
     WHERE a.state_hash = $1 AND a.status = 'pending' AND a.expires_at > now() AND p.id = a.provider
       AND p.provider_id = $2 AND w.id = a.workspace_id AND w.deleted_at IS NULL
       AND ($3::uuid IS NULL OR a.workspace_id = $3)
     RETURNING a.id, a.workspace_id AS "workspaceId", a.provider, a.user_id AS "userId", a.agent_id AS "agentId", a.scopes,
       a.is_default AS "isDefault", a.force_new AS "forceNew", a.replaced_token_id AS "replacedTokenId",
       a.sealed_code_verifier AS verifier, a.redirect_uri AS "redirectUri"`,
    [hashState(state), providerId, workspaceId ?? null],
  );
  if (pending === undefined) throw runlakeError('OAUTH_STATE_INVALID');
  return pending;
}

function createDenial({ provider_id: provider }: Provider, { error }: CallbackParameters): Error {
  if (error === 'access_denied') return runlakeError('OAUTH_CONSENT_DENIED', { provider });
  const reason =
    error === undefined ? 'it sent no code' : `it answered '${error.replace(/[^\w.-]/g, '').slice(0, 64)}'`;
  return runlakeError('OAUTH_PROVIDER_REFUSED', { provider, reason });
}

/** Step 4 of the header comment. */
async function storeGrant(deps: OAuthDeps, tx: Sql, pending: PendingAuthentication, grant: Grant): Promise<void> {
  const { workspaceId, userId, provider, agentId, scopes: asked } = pending;
  // The user may have been removed while the code was redeemed.
  const [kept] = await tx.query('SELECT FROM oauth_authentications WHERE id = $1 FOR UPDATE', [pending.id]);
  if (kept === undefined) throw runlakeError('OAUTH_STATE_INVALID');
  // Completions for the same user and provider wait for each other, so that both do not add a token.
  await tx.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [
    `oauth ${workspaceId} ${provider} ${userId}`,
  ]);
  const scopes = chooseScopes(grant, asked);
  const { forceNew, replacedTokenId: tokenId } = pending;
  const candidates = await findCandidates(tx, pending, provider, { agentId, tokenId, forceNew, scopes });
  const replaced = candidates.find(({ isReplaceable }) => isReplaceable);
  const id = replaced?.id ?? randomUUID();
  const [sealedAccess, sealedRefresh] = sealGrant(deps.secretSealer, id, grant);
  const { expiresAt, freshUntil } = buildExpirySql('$9');
  await tx.execute(
    `INSERT INTO oauth_tokens AS t (id, workspace_id, provider, user_id, scopes, sealed_access_token, sealed_refresh_token,
       for_any_agent, expires_at, fresh_until, is_default)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, ${expiresAt}, ${freshUntil}, $10)
     ON CONFLICT (id) DO UPDATE SET scopes = excluded.scopes, sealed_access_token = excluded.sealed_access_token,
       sealed_refresh_token = excluded.sealed_refresh_token, expires_at = excluded.expires_at,
       fresh_until = excluded.fresh_until, is_default = t.is_default OR excluded.is_default, refresh_lease = NULL,
       refresh_lease_until = NULL, updated_at = now()`,
    [
      ...[id, workspaceId, provider, userId, scopes, sealedAccess, sealedRefresh, agentId === null],
      ...[grant.lifetimeSeconds ?? null, pending.isDefault],
    ],
  );
  if (pending.isDefault) await makeOnlyDefault(tx, pending, provider, id);
  if (agentId !== null) await connectToken(tx, pending, { agentId, tokenId: id });
  await tx.execute(`UPDATE oauth_authentications SET status = 'completed', token_id = $2 WHERE id = $1`, [
    pending.id,
    id,
  ]);
  await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, {
    max: deps.limits.maxOAuthTokens,
    countSql: countInWorkspaces('oauth_tokens'),
    what: 'OAuth tokens',
  });
}
