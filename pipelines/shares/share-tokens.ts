/**
 * Traces, threads and datasets that are shared by a token. A client that has the token can read them without a key, but
 * cannot change anything. The server creates a random token, which is valid until its row is deleted.
 */
import { createHash, randomUUID } from 'node:crypto';
import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { createSealer, type Sealer } from '../../infra/sealing/sealer.ts';
import { recordAuditLog } from '../tenants/audit-logs.ts';

export function createShareSealer({ formerSecretKeys }: Pick<Config, 'formerSecretKeys'>, secretKey: string): Sealer {
  return createSealer({
    secretKey,
    formerSecretKeys,
    purpose: 'shares',
    what: 'The tokens of the share',
  });
}

export interface ShareDeps {
  readonly database: Database;
  readonly shareSealer: Sealer;
}

export type ShareKind = 'trace' | 'thread' | 'dataset';

export interface ShareTarget {
  readonly kind: ShareKind;
  readonly workspaceId: string;
  readonly targetId: string;
}

export interface SharedThread {
  readonly projectId: string;
  readonly threadId: string;
}

/** Decrypts the token of a share. @throws SEAL_KEY_UNKNOWN, SEAL_BROKEN */
export function openSealedToken(
  { shareSealer }: Pick<ShareDeps, 'shareSealer'>,
  shared: ShareTarget,
  sealed: string,
): string {
  return shareSealer.open(sealed, identifyRow(shared, shared.targetId)).text;
}

interface ShareRow {
  readonly target: string;
  readonly sealed: string;
}

export const hashToken = (token: string) => createHash('sha256').update(token.toLowerCase()).digest();
/** Returns a text that identifies the share of a token. The token cannot be computed from it. */
export const identifyShare = (token: string) => hashToken(token).toString('base64url');

/** Returns whether the share that {@link identifyShare} identifies still exists in the workspace. */
export async function isLiveShare(database: Database, workspaceId: string, share: string): Promise<boolean> {
  const rows = await database.query(
    'SELECT FROM shares WHERE token_hash = $1 AND workspace_id = $2',
    [Buffer.from(share, 'base64url'), workspaceId],
    { name: 'find-live-share' },
  );
  return rows.length > 0;
}

const identifyRow = ({ kind, workspaceId }: Record<'kind' | 'workspaceId', string>, targetId: string) =>
  `${kind} ${workspaceId} ${targetId}`;

/** The column with the sealed tokens, for {@link resealColumns}. */
export const sealedTokenColumn = {
  table: 'shares',
  column: 'sealed_token',
  keyColumns: ['workspace_id', 'kind', 'target_id'],
  identify: (workspaceId: string, kind: string, targetId: string) => identifyRow({ kind, workspaceId }, targetId),
};

/**
 * Shares a trace, a thread or a dataset, and returns the token. If the object is already shared, returns the existing
 * token.
 *
 * @param thread Project and id of a thread, whose `targetId` is a hash.
 * @param withExperiments Whether to share the experiments on a dataset too. If the dataset is already shared, this
 *   setting is changed.
 * @throws CONFLICT; SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the database.
 */
export async function createShare(
  deps: ShareDeps,
  shared: ShareTarget,
  {
    userId,
    withExperiments = false,
    thread,
  }: { readonly userId: string; readonly withExperiments?: boolean; readonly thread?: SharedThread },
): Promise<string> {
  const { kind, workspaceId, targetId } = shared;
  const token = randomUUID();
  const sealed = deps.shareSealer.seal(token, identifyRow(shared, targetId));
  await deps.database.transaction(async (tx) => {
    const [stored] = await tx.query<{ isChanged: boolean }>(
      `INSERT INTO shares (kind, workspace_id, target_id, token_hash, sealed_token, shared_by, with_experiments, project_id, thread_id)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
       ON CONFLICT (workspace_id, kind, target_id) DO UPDATE SET with_experiments = excluded.with_experiments
         WHERE shares.with_experiments <> excluded.with_experiments
       RETURNING xmax <> 0 AS "isChanged"`,
      [
        kind,
        workspaceId,
        targetId,
        hashToken(token),
        sealed,
        userId,
        withExperiments,
        thread?.projectId ?? null,
        thread?.threadId ?? null,
      ],
    );
    if (stored?.isChanged) {
      const [target, details] = [{ kind, id: targetId }, { changed: ['with_experiments'] }];
      await recordAuditLog(tx, { workspaceId, action: 'share.update', target, details });
    }
  });
  const created = await readShare(deps, shared);
  if (created === undefined) throw runlakeError('CONFLICT', { reason: 'The share was just deleted.' });
  return created;
}

/**
 * Returns the token of a share; undefined if there is none.
 *
 * @throws SEAL_KEY_UNKNOWN, SEAL_BROKEN; errors of the database.
 */
export async function readShare(
  { database, shareSealer }: ShareDeps,
  shared: ShareTarget,
): Promise<string | undefined> {
  const [row] = await readRows(database, shared, [shared.targetId]);
  return row && shareSealer.open(row.sealed, identifyRow(shared, row.target)).text;
}

/**
 * Reads the tokens of the shared targets among the given targets, by target. Tokens that cannot be decrypted with any
 * configured key are omitted.
 */
export async function readShareTokens(
  { database, shareSealer }: ShareDeps,
  of: Omit<ShareTarget, 'targetId'>,
  targetIds: readonly string[],
): Promise<Map<string, string>> {
  const rows = await readRows(database, of, targetIds);
  return new Map(
    rows.flatMap(({ target, sealed }) => {
      try {
        return [[target, shareSealer.open(sealed, identifyRow(of, target)).text]];
      } catch (error) {
        if (isRunlakeError(error)) return [];
        throw error;
      }
    }),
  );
}

function readRows(
  database: Database,
  { kind, workspaceId }: Omit<ShareTarget, 'targetId'>,
  targetIds: readonly string[],
): Promise<ShareRow[]> {
  return database.query<ShareRow>(
    `SELECT target_id AS target, sealed_token AS sealed FROM shares
     WHERE kind = $1 AND workspace_id = $2 AND target_id = ANY ($3::uuid[])`,
    [kind, workspaceId, targetIds],
    { name: 'read-shares' },
  );
}

/** Ends the sharing of the given targets; targets that are not shared are ignored. */
export async function deleteShares(
  database: Pick<Database, 'execute'>,
  { kind, workspaceId }: Omit<ShareTarget, 'targetId'>,
  targetIds: readonly string[],
): Promise<void> {
  await database.execute('DELETE FROM shares WHERE kind = $1 AND workspace_id = $2 AND target_id = ANY ($3::uuid[])', [
    kind,
    workspaceId,
    targetIds,
  ]);
}

export interface OpenedShare {
  readonly organizationId: string;
  readonly tenantId: string;
  readonly kind: ShareKind;
  readonly targetId: string;
  readonly withExperiments: boolean;
  /** Project of a shared thread; null for other kinds. */
  readonly projectId: string | null;
  readonly threadId: string | null;
}

const names: Readonly<Record<ShareKind, string>> = {
  trace: 'Shared trace',
  thread: 'Shared thread',
  dataset: 'Shared dataset',
};

/**
 * Finds what a token gives access to.
 *
 * @throws NOT_FOUND if there is nothing of these kinds, or if the workspace is deleted.
 */
export async function openShareToken(
  database: Database,
  kind: ShareKind | readonly [ShareKind, ...ShareKind[]],
  token: string,
): Promise<OpenedShare> {
  const [first, ...others] = typeof kind === 'string' ? [kind] : kind;
  const [found] = await database.query<OpenedShare>(
    `SELECT w.organization_id AS "organizationId", w.id AS "tenantId", s.kind, s.target_id AS "targetId",
       s.with_experiments AS "withExperiments", s.project_id AS "projectId", s.thread_id AS "threadId"
     FROM shares s JOIN workspaces w ON w.id = s.workspace_id
     WHERE s.token_hash = $1 AND s.kind = ANY ($2) AND w.deleted_at IS NULL`,
    [hashToken(token), [first, ...others]],
    { name: 'open-share' },
  );
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: names[first] });
  return found;
}
