import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { buildAssignments } from '../../infra/postgres/assignments.ts';
import { createOrFind, getViolatedConstraint } from '../../infra/postgres/database-error.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { addTaggings } from '../tags/taggings.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { countInWorkspaces, enforceLimit } from '../tenants/enforce-limit.ts';
import {
  findReadableRepo,
  type HubDeps,
  lockOwnRepo,
  type RepoName,
  type RepoRecord,
  type RepoType,
  readRepo,
} from './repo.ts';

/** Limit on the number of repos of an organisation. */
const repoLimit = { max: 10_000, countSql: countInWorkspaces('repos'), what: 'prompts, agents and skills' };

interface NewRepo {
  readonly handle: string;
  readonly repoType: RepoType;
  readonly isPublic: boolean;
  readonly description?: string | null | undefined;
  readonly readme?: string | null | undefined;
  readonly tags?: readonly string[] | null | undefined;
  readonly tagValueIds?: readonly string[] | null | undefined;
}

/**
 * Creates a repo.
 *
 * @throws CONFLICT if the handle is taken; BAD_REQUEST if the repo is public and the workspace has no handle;
 *   NOT_FOUND for an unknown tag value; LIMIT_REACHED.
 */
export async function createRepo(database: Database, caller: WorkspaceCaller, repo: NewRepo): Promise<RepoRecord> {
  const id = randomUUID();
  const { handle, repoType, isPublic, description = null, readme = null, tags } = repo;
  const { workspaceId } = caller;
  const insert = async (tx: Sql) => {
    const [made] = await tx.query<{ ownerHandle: string | null }>(
      `WITH made AS (
         INSERT INTO repos (id, workspace_id, handle, repo_type, is_public, description, readme, tags)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8))
       SELECT tenant_handle AS "ownerHandle" FROM workspaces WHERE id = $2`,
      [id, workspaceId, handle, repoType, isPublic, description, readme, withoutRepeats(tags ?? [])],
    );
    if (isPublic) requireOwnerHandle(made?.ownerHandle);
    await addTaggings(tx, workspaceId, { type: 'prompt', id }, repo.tagValueIds ?? []);
    await enforceLimit(tx, 'organizationOfWorkspace', workspaceId, repoLimit);
  };
  const create = async () => {
    await database.transaction(insert).catch((error: unknown) => {
      if (getViolatedConstraint(error) !== 'repos_by_handle') throw error;
      throw runlakeError('CONFLICT', { reason: 'A repo with this handle already exists.' }, { cause: error });
    });
    return readRepo(database, caller, id);
  };
  return createOrFind(create, () => readRepo(database, caller, id));
}

/** Absent fields stay unchanged; null clears a text field, and leaves a flag unchanged. */
interface RepoChange {
  readonly description?: string | null | undefined;
  readonly readme?: string | null | undefined;
  readonly tags?: readonly string[] | null | undefined;
  readonly isPublic?: boolean | null | undefined;
  readonly isArchived?: boolean | null | undefined;
}

/** Changes a repo. @throws NOT_FOUND; BAD_REQUEST if the repo becomes public and the workspace has no handle. */
export async function updateRepo(
  database: Database,
  caller: WorkspaceCaller,
  name: RepoName,
  { description, readme, tags, isPublic, isArchived }: RepoChange,
): Promise<RepoRecord> {
  const columns = {
    description,
    readme,
    tags: tags === undefined ? undefined : withoutRepeats(tags ?? []),
    is_public: isPublic ?? undefined,
    is_archived: isArchived ?? undefined,
  };
  const { assignments, values } = buildAssignments(columns, 2);
  return database.transaction(async (tx) => {
    const { id, ownerHandle } = await lockOwnRepo(tx, caller.workspaceId, name);
    if (isPublic === true) requireOwnerHandle(ownerHandle);
    await tx.execute(`UPDATE repos SET updated_at = now()${assignments} WHERE id = $1`, [id, ...values]);
    return readRepo(tx, caller, id);
  });
}

/**
 * Deletes a repo with its commits.
 *
 * @throws NOT_FOUND, also if `types` is given and does not contain the type of the repo.
 */
export async function deleteRepo(
  database: Database,
  caller: WorkspaceCaller,
  name: RepoName,
  types?: readonly RepoType[],
): Promise<void> {
  await database.transaction(async (tx) => {
    const { id, repoType } = await lockOwnRepo(tx, caller.workspaceId, name);
    if (types && !types.includes(repoType)) throw runlakeError('NOT_FOUND', { what: 'Agent or skill' });
    await tx.execute('DELETE FROM repos WHERE id = $1', [id]);
  });
}

/** Adds or removes the like of the caller's user; returns the number of likes. @throws NOT_FOUND */
export async function likeRepo(deps: HubDeps, caller: WorkspaceCaller, name: RepoName, like: boolean): Promise<number> {
  const { id } = await findReadableRepo(deps, caller, name);
  return deps.database.transaction(async (tx) => {
    await tx.query('SELECT FROM repos WHERE id = $1 FOR UPDATE', [id]);
    const changed = await tx.execute(
      like
        ? 'INSERT INTO repo_likes (repo_id, user_id) SELECT id, $2 FROM repos WHERE id = $1 ON CONFLICT DO NOTHING'
        : 'DELETE FROM repo_likes WHERE repo_id = $1 AND user_id = $2',
      [id, caller.userId],
    );
    const [repo] = await tx.query<{ likes: number }>(
      'UPDATE repos SET like_count = like_count + $2 WHERE id = $1 RETURNING like_count AS likes',
      [id, like ? changed : -changed],
    );
    if (!repo) throw runlakeError('NOT_FOUND', { what: 'Repo' });
    return repo.likes;
  });
}

const withoutRepeats = (tags: readonly string[]) => [...new Set(tags)];

/**
 * Requires a handle for public repos, because other workspaces refer to a public repo by the handle of its workspace.
 */
function requireOwnerHandle(handle: string | null | undefined): void {
  if (handle != null) return;
  throw runlakeError('BAD_REQUEST', {
    reason: 'A public repo needs a handle of the workspace: set it with POST /settings/handle.',
  });
}
