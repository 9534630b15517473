/**
 * Returns access tokens, and refreshes them before they expire.
 *
 * Invariant: each refresh token is used by at most one caller at a time, over all processes, because providers that
 * rotate refresh tokens treat a second use as theft and revoke the whole grant.
 *
 *   1. Read the token. If it is fresh according to the clock of Postgres, return it.
 *   2. One statement takes the lease of the row, unless another caller has it or has stored new values since step 1. The
 *      lease is longer than a request to a provider can take. Without the lease, wait and start again at step 1.
 *   3. Send the refresh token to the provider.
 *   4. Store the new values and end the lease, only if the lease is still this caller's: consent that replaced the token
 *      in the meantime wins.
 *
 * After a crash between steps 2 and 4, the lease expires and another caller refreshes. If the provider had already
 * rotated the refresh token, it refuses the old one, and the user has to consent again.
 */
import { randomUUID } from 'node:crypto';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Sealer } from '../../infra/sealing/sealer.ts';
import { poll } from '../../infra/timeouts/poll.ts';
import { chooseScopes, type Grant, refreshGrant } from './grant.ts';
import { type OAuthDeps, providerTimeoutMs } from './oauth-deps.ts';
import { readProviderById } from './provider.ts';
import { identifyToken } from './token.ts';

/** A token that can be sent to the API of a provider. */
export interface UsableToken {
  readonly id: string;
  readonly accessToken: string;
  readonly scopes: readonly string[];
  readonly label: string | null;
  readonly expiresAt: string | null;
}

interface StoredToken {
  readonly id: string;
  readonly provider: string;
  readonly scopes: readonly string[];
  readonly label: string | null;
  readonly access: string;
  readonly refresh: string | null;
  readonly expiresAt: string | null;
  readonly isFresh: boolean;
  readonly isExpired: boolean;
}

const leaseMs = 2 * providerTimeoutMs;
const pollIntervalMs = 50;

/**
 * Maximum time before its expiry at which a token is refreshed, so that it does not expire before the provider receives
 * it.
 */
const maxRefreshAheadSeconds = 60;

/**
 * Returns a token that is valid for a while, refreshed if needed. Returns undefined if it is deleted, or expired and
 * cannot be refreshed, so that the user has to consent again.
 *
 * @throws OAUTH_PROVIDER_UNAVAILABLE, OAUTH_PROVIDER_REFUSED, OAUTH_ENDPOINT_NOT_ALLOWED if the token has expired and
 *   the refresh fails for a reason other than its refresh token.
 */
export async function getUsableToken(
  deps: OAuthDeps,
  workspaceId: string,
  tokenId: string,
): Promise<UsableToken | undefined> {
  const attempt = async () => {
    const token = await readStoredToken(deps.database, workspaceId, tokenId);
    if (token === undefined) return { usable: undefined };
    if (token.isFresh) return { usable: toUsable(deps, token) };
    if (token.refresh === null) return { usable: token.isExpired ? undefined : toUsable(deps, token) };
    const lease = randomUUID();
    if (!(await takeLease(deps.database, token, lease))) return undefined;
    return { usable: await refresh(deps, workspaceId, token, lease) };
  };
  const result = await poll(attempt, { intervalMs: pollIntervalMs, timeoutMs: leaseMs + providerTimeoutMs });
  if (result !== undefined) return result.usable;
  throw runlakeError('OVERLOADED', { what: 'the refresh of an OAuth token' });
}

async function readStoredToken(sql: Sql, workspaceId: string, tokenId: string): Promise<StoredToken | undefined> {
  const [token] = await sql.query<StoredToken>(
    `SELECT id, provider, scopes, label, sealed_access_token AS access, sealed_refresh_token AS refresh,
       expires_at AS "expiresAt", fresh_until IS NULL OR fresh_until > now() AS "isFresh",
       expires_at <= now() AS "isExpired"
     FROM oauth_tokens WHERE workspace_id = $1 AND id = $2`,
    [workspaceId, tokenId],
  );
  return token;
}

async function takeLease(sql: Sql, { id, refresh }: StoredToken, lease: string): Promise<boolean> {
  const changed = await sql.execute(
    `UPDATE oauth_tokens SET refresh_lease = $3, refresh_lease_until = now() + $4 * interval '1 millisecond'
     WHERE id = $1 AND sealed_refresh_token = $2 AND (refresh_lease IS NULL OR refresh_lease_until <= now())`,
    [id, refresh, lease, leaseMs],
  );
  return changed > 0;
}

/** Steps 3 and 4 of the header comment. */
async function refresh(
  deps: OAuthDeps,
  workspaceId: string,
  token: StoredToken,
  lease: string,
): Promise<UsableToken | undefined> {
  const { database, secretSealer, logger } = deps;
  try {
    const provider = await readProviderById(database, token.provider);
    if (provider === undefined) return undefined;
    const refreshToken = secretSealer.open(token.refresh ?? '', identifyToken(token.id, 'refresh')).text;
    const grant = await refreshGrant(deps, provider, refreshToken);
    if (grant === undefined) {
      logger.info(
        { tokenId: token.id, provider: provider.provider_id },
        'refresh token of an OAuth token not accepted',
      );
      await endLease(database, token.id, lease, { isDead: true });
      return undefined;
    }
    // A response without a refresh token means that the former one stays valid. RFC 6749, 6.
    await storeRefreshed(deps, token, lease, { ...grant, refreshToken: grant.refreshToken ?? refreshToken });
  } catch (error) {
    await endLease(database, token.id, lease, { isDead: false });
    // The refresh is ahead of the expiry; until then the token is still valid.
    if (!isRunlakeError(error) || token.isExpired) throw error;
    logger.warn({ err: error, tokenId: token.id }, 'OAuth token not refreshed, using it until it expires');
    return toUsable(deps, token);
  }
  const refreshed = await readStoredToken(database, workspaceId, token.id);
  return refreshed === undefined || refreshed.isExpired ? undefined : toUsable(deps, refreshed);
}

async function storeRefreshed({ database, secretSealer }: OAuthDeps, token: StoredToken, lease: string, grant: Grant) {
  const [sealedAccess, sealedRefresh] = sealGrant(secretSealer, token.id, grant);
  const { expiresAt, freshUntil } = buildExpirySql('$6');
  await database.execute(
    `UPDATE oauth_tokens SET sealed_access_token = $3, sealed_refresh_token = $4, scopes = $5,
       expires_at = ${expiresAt}, fresh_until = ${freshUntil}, refresh_lease = NULL, refresh_lease_until = NULL,
       updated_at = now()
     WHERE id = $1 AND refresh_lease = $2`,
    [token.id, lease, sealedAccess, sealedRefresh, chooseScopes(grant, token.scopes), grant.lifetimeSeconds ?? null],
  );
}

/**
 * Returns SQL for `expires_at` and `fresh_until` of a token that was just issued with a lifetime in seconds, which may
 * be null. Only the clock of Postgres counts, so neither the clock of the provider nor that of this process matters.
 */
export function buildExpirySql(lifetime: string): { readonly expiresAt: string; readonly freshUntil: string } {
  const seconds = `${lifetime}::double precision`;
  const ahead = `least(${maxRefreshAheadSeconds}, ${seconds} / 5)`;
  return {
    expiresAt: `now() + ${seconds} * interval '1 second'`,
    freshUntil: `now() + (${seconds} - ${ahead}) * interval '1 second'`,
  };
}

/** Encrypts the tokens of a grant for the row `id`. */
export function sealGrant(sealer: Sealer, id: string, { accessToken, refreshToken }: Grant): [string, string | null] {
  return [
    sealer.seal(accessToken, identifyToken(id, 'access')),
    refreshToken === undefined ? null : sealer.seal(refreshToken, identifyToken(id, 'refresh')),
  ];
}

/**
 * Ends a lease. `isDead`: the provider refused the refresh token, so the user has withdrawn consent, and the access
 * token counts as expired.
 */
async function endLease(sql: Sql, id: string, lease: string, { isDead }: { readonly isDead: boolean }) {
  await sql.execute(
    `UPDATE oauth_tokens SET refresh_lease = NULL, refresh_lease_until = NULL,
       sealed_refresh_token = CASE WHEN $3 THEN NULL ELSE sealed_refresh_token END,
       expires_at = CASE WHEN $3 THEN least(expires_at, now()) ELSE expires_at END
     WHERE id = $1 AND refresh_lease = $2`,
    [id, lease, isDead],
  );
}

function toUsable({ secretSealer }: OAuthDeps, token: StoredToken): UsableToken {
  const { id, scopes, label, expiresAt } = token;
  const accessToken = secretSealer.open(token.access, identifyToken(id, 'access')).text;
  return { id, accessToken, scopes, label, expiresAt };
}
