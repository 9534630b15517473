import { type Expression, type SqlBool, sql } from 'kysely';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import {
  containsText,
  fetchRows,
  isOneOf,
  listPage,
  type Page,
  type PageRequest,
  statements,
} from '../../infra/postgres/list-page.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';

export const repoTypes = ['prompt', 'file', 'agent', 'skill'] as const;
export type RepoType = (typeof repoTypes)[number];

/** A repo as returned in responses. Times are ISO 8601 with microseconds. */
export interface RepoRecord {
  readonly id: string;
  readonly tenant_id: string;
  readonly repo_handle: string;
  readonly repo_type: RepoType;
  readonly description: string | null;
  readonly readme: string | null;
  readonly tags: string[];
  readonly is_public: boolean;
  readonly is_archived: boolean;
  /** Handle of the workspace. */
  readonly owner: string | null;
  readonly full_name: string;
  readonly num_likes: number;
  readonly num_downloads: number;
  readonly num_views: number;
  readonly num_commits: number;
  readonly last_commit_id: string | null;
  readonly last_commit_hash: string | null;
  readonly commit_tags: string[];
  readonly liked_by_auth_user: boolean;
  readonly created_at: string;
  readonly updated_at: string;
}

export interface HubDeps {
  readonly database: Database;
  readonly config: Pick<Config, 'sharePublicPrompts'>;
}

/** Name of a repo, in the form in which URL paths contain it. */
export interface RepoName {
  /** Handle of the workspace; {@link callerWorkspaceHandle} stands for the workspace of the caller. */
  readonly owner: string;
  readonly handle: string;
}

const callerWorkspaceHandle = '-';

/** A repo that the caller has access to. */
export interface AccessibleRepo {
  readonly id: string;
  readonly repoType: RepoType;
}

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Repo' });

/**
 * Finds a repo that the caller may read: a repo of the caller's workspace, or a public repo if the installation shares
 * public repos.
 *
 * @throws NOT_FOUND
 */
export async function findReadableRepo(
  { database, config }: HubDeps,
  caller: WorkspaceCaller,
  { owner, handle }: RepoName,
): Promise<AccessibleRepo> {
  const [found] = await database.query<AccessibleRepo>(
    `SELECT repos.id, repo_type AS "repoType"
     FROM repos JOIN workspaces AS w ON w.id = repos.workspace_id
     WHERE handle = $2 AND w.deleted_at IS NULL
       AND CASE WHEN $1 = '${callerWorkspaceHandle}' THEN workspace_id = $3
                ELSE w.tenant_handle = $1 AND (workspace_id = $3 OR is_public AND $4) END`,
    [owner, handle, caller.workspaceId, config.sharePublicPrompts],
  );
  if (!found) throw createNotFoundError();
  return found;
}

/**
 * Locks a repo of the caller's workspace until the end of the transaction, so that changes to the repo run one after
 * the other.
 *
 * @throws NOT_FOUND, also for public repos of other workspaces.
 */
export async function lockOwnRepo(tx: Sql, workspaceId: string, { owner, handle }: RepoName): Promise<LockedRepo> {
  const [found] = await tx.query<LockedRepo>(
    `SELECT repos.id, repo_type AS "repoType", last_commit_id AS "lastCommitId", commit_count AS "commitCount",
       w.tenant_handle AS "ownerHandle"
     FROM repos JOIN workspaces AS w ON w.id = repos.workspace_id
     WHERE handle = $2 AND workspace_id = $3 AND ($1 = '${callerWorkspaceHandle}' OR w.tenant_handle = $1)
     FOR UPDATE OF repos`,
    [owner, handle, workspaceId],
  );
  if (!found) throw createNotFoundError();
  return found;
}

export interface LockedRepo extends AccessibleRepo {
  readonly lastCommitId: string | null;
  readonly commitCount: number;
  /** Handle of the workspace. */
  readonly ownerHandle: string | null;
}

/** Selects repos with their figures, as seen by a user. */
function selectRepos(userId: string) {
  return statements
    .selectFrom('repos')
    .innerJoin('workspaces', 'workspaces.id', 'repos.workspace_id')
    .leftJoin('repo_commits', 'repo_commits.id', 'repos.last_commit_id')
    .select([
      'repos.id',
      'repos.workspace_id as tenant_id',
      'repos.handle as repo_handle',
      'repos.repo_type',
      'repos.description',
      'repos.readme',
      'repos.tags',
      'repos.is_public',
      'repos.is_archived',
      'workspaces.tenant_handle as owner',
      sql<string>`coalesce(tenant_handle, ${sql.lit(callerWorkspaceHandle)}) || '/' || handle`.as('full_name'),
      'repos.like_count as num_likes',
      'repos.download_count as num_downloads',
      'repos.view_count as num_views',
      'repos.commit_count as num_commits',
      'repos.last_commit_id',
      'repo_commits.hash as last_commit_hash',
      sql<string[]>`ARRAY(SELECT name FROM repo_tags WHERE repo_id = repos.id ORDER BY name)`.as('commit_tags'),
      sql<boolean>`EXISTS (SELECT FROM repo_likes WHERE repo_id = repos.id AND user_id = ${userId}::uuid)`.as(
        'liked_by_auth_user',
      ),
      'repos.created_at',
      'repos.updated_at',
    ])
    .where('workspaces.deleted_at', 'is', null);
}

/** Reads a repo that the caller has access to. @throws NOT_FOUND if the repo has been deleted in the meantime. */
export async function readRepo(database: Sql, caller: WorkspaceCaller, repoId: string): Promise<RepoRecord> {
  const [row] = await fetchRows(database, selectRepos(caller.userId).where('repos.id', '=', repoId));
  if (!row) throw createNotFoundError();
  return row as RepoRecord;
}

export const repoOrders = ['num_likes', 'num_downloads', 'num_views', 'updated_at', 'relevance'] as const;

export interface RepoQuery extends PageRequest {
  readonly ids?: readonly string[] | undefined;
  readonly types: readonly RepoType[];
  /** Text that the handle, description or readme must contain, ignoring case. */
  readonly text?: string | undefined;
  /** Tags, all of which the repo must have. */
  readonly tags?: readonly string[] | undefined;
  readonly isPublic?: boolean | undefined;
  readonly isArchived?: boolean | undefined;
  readonly hasCommits?: boolean | undefined;
  /** Handle of a workspace. */
  readonly owner?: string | undefined;
  readonly workspaceId?: string | undefined;
  readonly sortBy: (typeof repoOrders)[number];
  readonly descending: boolean;
}

/**
 * Lists repos of the caller's workspace. If the installation shares public repos, a query for public repos, or for a
 * workspace by handle or id, also lists the public repos of other workspaces.
 */
export async function listRepos(
  { database, config }: HubDeps,
  caller: WorkspaceCaller,
  {
    ids,
    types,
    text,
    tags,
    isPublic,
    isArchived,
    hasCommits,
    owner,
    workspaceId,
    sortBy,
    descending,
    ...page
  }: RepoQuery,
): Promise<Page<RepoRecord>> {
  const includesShared =
    config.sharePublicPrompts && (isPublic === true || owner !== undefined || workspaceId !== undefined);
  const query = selectRepos(caller.userId).where((repo) => {
    const isOwn = repo('repos.workspace_id', '=', caller.workspaceId);
    const conditions: Expression<SqlBool>[] = [
      includesShared ? repo.or([isOwn, repo('repos.is_public', '=', true)]) : isOwn,
      isOneOf(repo.ref('repos.repo_type'), types, 'text'),
    ];
    if (ids) conditions.push(isOneOf(repo.ref('repos.id'), ids, 'uuid'));
    if (text !== undefined) {
      const columns = ['repos.handle', 'repos.description', 'repos.readme'] as const;
      conditions.push(repo.or(columns.map((column) => containsText(repo.ref(column) as Expression<string>, text))));
    }
    if (tags) conditions.push(sql<SqlBool>`repos.tags @> ${tags}::text[]`);
    if (isPublic !== undefined) conditions.push(repo('repos.is_public', '=', isPublic));
    if (isArchived !== undefined) conditions.push(repo('repos.is_archived', '=', isArchived));
    if (hasCommits !== undefined) conditions.push(repo('repos.commit_count', hasCommits ? '>' : '=', 0));
    if (owner === callerWorkspaceHandle) conditions.push(isOwn);
    else if (owner !== undefined) conditions.push(repo('workspaces.tenant_handle', '=', owner));
    if (workspaceId !== undefined) conditions.push(repo('repos.workspace_id', '=', workspaceId));
    return repo.and(conditions);
  });
  const by = [...orderExpressions(sortBy, text), sql.ref('repos.id')];
  const { rows, total } = await listPage(database, query, { by, descending }, page);
  return { rows: rows as RepoRecord[], total };
}

const orderColumns = { num_likes: 'like_count', num_downloads: 'download_count', num_views: 'view_count' } as const;

/**
 * Returns the expressions to sort by. The order by relevance is: the handle equals the text, begins with it, contains
 * it, or only another field contains it.
 */
function orderExpressions(sortBy: RepoQuery['sortBy'], text: string | undefined): Expression<unknown>[] {
  const updatedAt = sql.ref('repos.updated_at');
  if (sortBy === 'updated_at') return [updatedAt];
  if (sortBy !== 'relevance') return [sql.ref(`repos.${orderColumns[sortBy]}`), updatedAt];
  if (text === undefined) return [updatedAt];
  const position = sql`strpos(repos.handle, lower(${text}::text))`;
  const rank = sql`CASE ${position} WHEN 0 THEN 0 WHEN 1 THEN CASE WHEN length(repos.handle) = ${text.length} THEN 3 ELSE 2 END ELSE 1 END`;
  return [rank, updatedAt];
}
