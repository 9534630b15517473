/** Lists and ends the shares of a workspace. */
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import { hashToken, openSealedToken, type ShareDeps, type ShareKind } from './share-tokens.ts';

export interface ListedShare {
  readonly kind: ShareKind;
  readonly token: string;
  readonly targetId: string;
  readonly createdAt: string;
  readonly datasetName: string | null;
  readonly projectId: string | null;
  readonly threadId: string | null;
}

interface ShareRow extends Omit<ListedShare, 'token'> {
  readonly sealed: string;
}

/**
 * Lists the shares of a workspace, newest first. Shares whose token cannot be decrypted with any configured key are
 * omitted.
 */
export async function listShares(
  deps: ShareDeps,
  workspaceId: string,
  { limit, offset }: PageRequest,
): Promise<ListedShare[]> {
  const rows = await deps.database.query<ShareRow>(
    `SELECT s.kind, s.target_id AS "targetId", s.sealed_token AS sealed, s.created_at AS "createdAt",
       d.name AS "datasetName", s.project_id AS "projectId", s.thread_id AS "threadId"
     FROM shares AS s LEFT JOIN datasets AS d ON s.kind = 'dataset' AND d.id = s.target_id AND d.workspace_id = $1
     WHERE s.workspace_id = $1 ORDER BY s.created_at DESC, s.target_id LIMIT $2 OFFSET $3`,
    [workspaceId, limit, offset],
  );
  return rows.flatMap(({ sealed, ...share }) => {
    try {
      return [{ ...share, token: openSealedToken(deps, { ...share, workspaceId }, sealed) }];
    } catch (error) {
      if (isRunlakeError(error)) return [];
      throw error;
    }
  });
}

/** Ends the sharing of everything that these tokens share, or of everything that the workspace shares. */
export async function endShares(
  database: Database,
  workspaceId: string,
  tokens: readonly string[] | 'all',
): Promise<void> {
  await database.execute(
    'DELETE FROM shares WHERE workspace_id = $1 AND ($2::bytea[] IS NULL OR token_hash = ANY ($2))',
    [workspaceId, tokens === 'all' ? null : tokens.map(hashToken)],
  );
}
