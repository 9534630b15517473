/** Connections of agents with OAuth tokens: a connected agent uses these tokens before others. */
import { randomUUID } from 'node:crypto';
import { internals } from '../../infra/config/internals.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { queryPageWithinLimit } from '../../infra/postgres/page-within.ts';
import type { OAuthDeps } from './oauth-deps.ts';
import { readToken, type TokenOwner, type TokenRecord } from './token.ts';

export interface ConnectionRecord
  extends Pick<TokenRecord, 'provider_id' | 'provider_account_label' | 'scopes' | 'expires_at'> {
  readonly id: string;
  readonly agent_id: string;
  readonly oauth_token_id: string;
  readonly created_by: string;
  readonly created_at: string;
}

const selectSql = `SELECT c.id, c.agent_id, c.token_id AS oauth_token_id, p.provider_id, t.label AS provider_account_label,
    t.scopes, t.expires_at, c.created_by, c.created_at
  FROM oauth_agent_connections c JOIN oauth_tokens t ON t.id = c.token_id JOIN oauth_providers p ON p.id = t.provider
  WHERE c.workspace_id = $1 AND c.agent_id = $2 AND t.user_id = $3`;

/** Lists the connections of an agent with tokens of a user, oldest first. @throws ANSWER_TOO_LARGE */
export function listConnections(
  { database }: OAuthDeps,
  { workspaceId, userId }: TokenOwner,
  agentId: string,
): Promise<ConnectionRecord[]> {
  return queryPageWithinLimit<ConnectionRecord>(
    database,
    `${selectSql} ORDER BY c.created_at, c.id`,
    [workspaceId, agentId, userId],
    internals.maxPageBytes,
  );
}

/** Maximum number of agents that are connected with one token. */
const maxConnections = 1_000;

/**
 * Connects an agent with a token of a user. If they are connected already, returns that connection.
 *
 * @throws NOT_FOUND; LIMIT_REACHED
 */
export async function createConnection(
  { database }: OAuthDeps,
  owner: TokenOwner,
  target: { readonly agentId: string; readonly tokenId: string },
): Promise<ConnectionRecord> {
  return database.transaction(async (tx) => {
    await readToken(tx, owner, target.tokenId);
    await connectToken(tx, owner, target);
    const [connection] = await tx.query<ConnectionRecord>(`${selectSql} AND c.token_id = $4`, [
      ...[owner.workspaceId, target.agentId, owner.userId, target.tokenId],
    ]);
    return connection as ConnectionRecord;
  });
}

/** Connects an agent with a token, unless they are connected already. @throws LIMIT_REACHED */
export async function connectToken(
  tx: Sql,
  { workspaceId, userId }: Pick<TokenOwner, 'workspaceId' | 'userId'>,
  { agentId, tokenId }: { readonly agentId: string; readonly tokenId: string },
): Promise<void> {
  // Concurrent connections of a token wait for each other, so that the count includes all of them.
  await tx.query('SELECT FROM oauth_tokens WHERE id = $1 FOR NO KEY UPDATE', [tokenId]);
  await tx.execute(
    `INSERT INTO oauth_agent_connections (id, workspace_id, agent_id, token_id, created_by) VALUES ($1, $2, $3, $4, $5)
     ON CONFLICT (workspace_id, agent_id, token_id) DO NOTHING`,
    [randomUUID(), workspaceId, agentId, tokenId, userId],
  );
  const sql = 'SELECT count(*) AS count FROM oauth_agent_connections WHERE token_id = $1';
  const [found] = await tx.query<{ count: number }>(sql, [tokenId]);
  if ((found?.count ?? 0) <= maxConnections) return;
  const hint = 'Delete connections that are not needed';
  throw runlakeError('LIMIT_REACHED', { limit: maxConnections, what: 'agents connected with one OAuth token', hint });
}

/** Ends a connection. A token that was granted for this agent can then no longer be used by it. @throws NOT_FOUND */
export async function deleteConnection(
  { database }: OAuthDeps,
  { workspaceId, userId }: TokenOwner,
  { agentId, connectionId }: { readonly agentId: string; readonly connectionId: string },
): Promise<void> {
  const deleted = await database.execute(
    `DELETE FROM oauth_agent_connections c USING oauth_tokens t
     WHERE c.workspace_id = $1 AND c.agent_id = $2 AND c.id = $3 AND t.id = c.token_id AND t.user_id = $4`,
    [workspaceId, agentId, connectionId, userId],
  );
  if (deleted === 0) throw runlakeError('NOT_FOUND', { what: 'Agent connection' });
}
