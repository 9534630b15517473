/** Finds a token of a user, or starts an authentication that gets one. */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { poll } from '../../infra/timeouts/poll.ts';
import { isUuid } from '../ingest/run-event/uuid.ts';
import { countInWorkspaces, enforceLimit } from '../tenants/enforce-limit.ts';
import { buildAuthorizationRequest } from './grant.ts';
import { createFieldError, type OAuthDeps } from './oauth-deps.ts';
import { type Provider, readProvider } from './provider.ts';
import { createTokenNotFoundError, type TokenOwner } from './token.ts';
import { getUsableToken, type UsableToken } from './use-token.ts';

export interface AuthenticateRequest {
  readonly providerId: string;
  readonly scopes: readonly string[];
  /**
   * Agent that uses the token. It gets tokens that were issued for it or connected with it, and those that were issued
   * without an agent.
   */
  readonly agentId?: string | null | undefined;
  /** Whether to start an authentication in any case. It adds a token, unless `tokenId` names the one to replace. */
  readonly forceNew?: boolean | undefined;
  /** The only token that may be used or replaced. */
  readonly tokenId?: string | null | undefined;
  /** Whether a new token becomes the default token of its user and provider. */
  readonly isDefault?: boolean | undefined;
}

export type AuthenticateResult =
  | { readonly status: 'completed'; readonly token: UsableToken }
  | { readonly status: 'pending'; readonly url: string; readonly authenticationId: string };

/** Time in which the user can give access, in minutes. */
const consentMinutes = 10;
/** Time after which finished authentications are deleted. Until then, {@link waitForAuthentication} finds them. */
const keepMinutes = 60;

/** Names of the user in a request, all with the same meaning. */
export interface UserNames {
  readonly user_id?: string | null | undefined;
  readonly ls_user_id?: string | null | undefined;
  readonly svc_user_id?: string | null | undefined;
}

/**
 * Returns the user for whom a key acts: by default the user of the key. A text that is not the id of a user of any
 * organisation is the name of an end user, who exists only in the workspace of the key.
 *
 * @throws INVALID_REQUEST if the names differ; NOT_FOUND if the user is removed or belongs to another organisation.
 */
export async function chooseUser(
  { database }: Pick<OAuthDeps, 'database'>,
  caller: TokenOwner,
  { user_id, ls_user_id, svc_user_id }: UserNames,
): Promise<TokenOwner> {
  const [userId, ...others] = new Set([user_id, ls_user_id, svc_user_id].filter((name) => name != null));
  if (others.length > 0) throw createFieldError('user_id', 'differs from its synonyms ls_user_id and svc_user_id');
  const { workspaceId, organizationId } = caller;
  if (userId === undefined) return { workspaceId, organizationId, userId: caller.userId };
  if (!isUuid(userId)) return { workspaceId, organizationId, userId };
  const [user] = await database.query<{ isOwn: boolean }>(
    'SELECT organization_id = $2 AND removed_at IS NULL AS "isOwn" FROM users WHERE id = $1',
    [userId, organizationId],
  );
  if (user?.isOwn === false) throw runlakeError('NOT_FOUND', { what: 'User' });
  return { workspaceId, organizationId, userId: userId.toLowerCase() };
}

/**
 * Returns a valid token with all requested scopes, refreshed if needed. If there is none, starts an authentication and
 * returns the URL at which the user gives access, once and within ten minutes.
 *
 * @throws NOT_FOUND if there is no such provider or token; LIMIT_REACHED; errors of {@link getUsableToken}.
 */
export async function authenticate(
  deps: OAuthDeps,
  owner: TokenOwner,
  request: AuthenticateRequest,
): Promise<AuthenticateResult> {
  const provider = await readProvider(deps.database, owner.organizationId, request.providerId);
  const candidates = await findCandidates(deps.database, owner, provider.id, request);
  if (request.tokenId != null && candidates.length === 0) throw createTokenNotFoundError();
  for (const { id } of request.forceNew ? [] : candidates.filter(({ hasScopes }) => hasScopes)) {
    const token = await getUsableToken(deps, owner.workspaceId, id);
    // A refresh may have returned fewer scopes.
    if (token !== undefined && request.scopes.every((scope) => token.scopes.includes(scope)))
      return { status: 'completed', token };
  }
  // Consent replaces a token, so it has to include the scopes that the token has.
  const replaced = candidates.find(({ isReplaceable }) => isReplaceable);
  const [kept] = await deps.database.query<{ scopes: string[] }>(
    'SELECT scopes FROM oauth_tokens WHERE workspace_id = $1 AND id = $2',
    [owner.workspaceId, replaced?.id ?? null],
  );
  const scopes = [...new Set([...(kept?.scopes ?? []), ...request.scopes])];
  return startAuthentication(deps, owner, provider, { ...request, scopes });
}

interface Candidate {
  readonly id: string;
  /** Whether it has the requested scopes. */
  readonly hasScopes: boolean;
  /** Whether a token that the user grants now may replace this one: it must not become usable for further agents. */
  readonly isReplaceable: boolean;
}

/** Maximum number of tokens of a user and a provider among which a request chooses. */
const maxCandidates = 1_000;

/**
 * Finds the tokens that a request may use or replace, in order of preference. Postgres compares the scopes, because a
 * token may have very many.
 */
export async function findCandidates(
  sql: Sql,
  { workspaceId, userId }: Pick<TokenOwner, 'workspaceId' | 'userId'>,
  provider: string,
  { agentId, tokenId, forceNew, scopes }: Pick<AuthenticateRequest, 'agentId' | 'tokenId' | 'forceNew' | 'scopes'>,
): Promise<Candidate[]> {
  if (forceNew && tokenId == null) return [];
  return sql.query<Candidate>(
    `SELECT t.id, t.scopes @> $6::text[] AS "hasScopes", t.for_any_agent = ($4::text IS NULL) AS "isReplaceable"
     FROM oauth_tokens t LEFT JOIN oauth_agent_connections c ON c.token_id = t.id AND c.agent_id = $4
     WHERE t.workspace_id = $1 AND t.user_id = $2 AND t.provider = $3 AND (t.for_any_agent OR c.id IS NOT NULL)
       AND ($5::uuid IS NULL OR t.id = $5)
     ORDER BY c.id IS NOT NULL DESC, t.is_default DESC, t.created_at DESC, t.id LIMIT ${maxCandidates}`,
    [workspaceId, userId, provider, agentId ?? null, tokenId ?? null, scopes],
  );
}

/** The state in a URL is stored as a hash. */
export const hashState = (state: string) => createHash('sha256').update(state).digest();
/** Identifies the row of a code verifier for the sealer. */
export const identifyVerifier = (id: string) => `oauth authentication ${id}`;

async function startAuthentication(
  { database, secretSealer, limits }: OAuthDeps,
  { workspaceId, userId }: TokenOwner,
  provider: Provider,
  { scopes, agentId, forceNew = false, tokenId, isDefault = true }: AuthenticateRequest,
): Promise<AuthenticateResult> {
  const id = randomUUID();
  // Clients that have only the reference read the id of the authentication from the state.
  const state = `${id}.${randomBytes(32).toString('base64url')}`;
  const { url, codeVerifier } = await buildAuthorizationRequest(provider, { state, scopes });
  await database.transaction(async (tx) => {
    await tx.execute(
      `DELETE FROM oauth_authentications
       WHERE workspace_id = $1 AND expires_at < now() - interval '${keepMinutes - consentMinutes} minutes'`,
      [workspaceId],
    );
    await tx.execute(
      `INSERT INTO oauth_authentications (id, workspace_id, provider, user_id, agent_id, scopes, is_default, force_new,
         replaced_token_id, state_hash, sealed_code_verifier, redirect_uri, expires_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, now() + interval '${consentMinutes} minutes')`,
      [
        ...[id, workspaceId, provider.id, userId, agentId ?? null, scopes, isDefault, forceNew, tokenId ?? null],
        ...[hashState(state), codeVerifier ? secretSealer.seal(codeVerifier, identifyVerifier(id)) : null],
        provider.redirect_uri,
      ],
    );
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, {
      max: limits.maxOAuthAuthentications,
      countSql: countInWorkspaces('oauth_authentications', `counted.status = 'pending' AND counted.expires_at > now()`),
      what: 'pending OAuth authentications',
      hint: `Wait: each ends after at most ${consentMinutes} minutes`,
    });
  });
  return { status: 'pending', url, authenticationId: id };
}

export interface WaitResult {
  readonly status: 'completed' | 'pending' | 'timeout' | 'not_found';
  readonly accessToken?: string;
}

const waitIntervalMs = 500;

/**
 * Waits until the user has given access. Status `not_found`: there is no such authentication in the workspace, it has
 * expired, or it failed, for example because the user denied access; start another one. `timeout`: nothing happened
 * within `timeoutMs`; `pending`: the same if `timeoutMs` is 0, or `signal` was aborted.
 *
 * @throws errors of {@link getUsableToken}.
 */
export async function waitForAuthentication(
  deps: OAuthDeps,
  workspaceId: string,
  authenticationId: string,
  { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<WaitResult> {
  if (!isUuid(authenticationId)) return { status: 'not_found' };
  const attempt = async () => {
    const [found] = await deps.database.query<{ status: string; token: string | null; isExpired: boolean }>(
      `SELECT status, token_id AS token, expires_at <= now() AS "isExpired" FROM oauth_authentications
       WHERE id = $1 AND workspace_id = $2`,
      [authenticationId, workspaceId],
    );
    if (found?.status === 'completed') return { token: found.token };
    return found === undefined || found.status === 'failed' || found.isExpired ? { token: null } : undefined;
  };
  const ended = await poll(attempt, { intervalMs: waitIntervalMs, timeoutMs, signal });
  if (ended === undefined) return { status: timeoutMs === 0 || signal.aborted ? 'pending' : 'timeout' };
  const token = ended.token === null ? undefined : await getUsableToken(deps, workspaceId, ended.token);
  return token === undefined ? { status: 'not_found' } : { status: 'completed', accessToken: token.accessToken };
}
