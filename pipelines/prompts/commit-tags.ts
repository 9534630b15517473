import { randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { lockOwnRepo, type RepoName } from './repo.ts';

/** Maximum number of tags per repo. */
const maxTags = 1_000;

/** A tag of a commit, as returned in responses. */
export interface CommitTag {
  readonly id: string;
  readonly repo_id: string;
  readonly commit_id: string;
  readonly commit_hash: string;
  readonly tag_name: string;
  readonly created_at: string;
  readonly updated_at: string;
}

const selectTagsSql = `SELECT t.id, t.repo_id, t.commit_id, c.hash AS commit_hash, t.name AS tag_name, t.created_at,
  t.updated_at FROM repo_tags AS t JOIN repo_commits AS c ON c.id = t.commit_id WHERE t.repo_id = $1`;

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Tag' });

/** Lists all tags of a repo, by name. */
export function listTags(database: Sql, repoId: string): Promise<CommitTag[]> {
  return database.query<CommitTag>(`${selectTagsSql} ORDER BY t.name`, [repoId]);
}

/** Reads a tag. @throws NOT_FOUND */
export async function readTag(database: Sql, repoId: string, name: string): Promise<CommitTag> {
  const [tag] = await database.query<CommitTag>(`${selectTagsSql} AND t.name = $2`, [repoId, name]);
  if (!tag) throw createNotFoundError();
  return tag;
}

/**
 * Points a tag to a commit. An existing tag with this name is moved, because clients send the same request for a new
 * and an existing tag.
 *
 * @param mustExist Whether the tag must already exist.
 * @throws NOT_FOUND, also if the commit is in another repo; REPO_FULL.
 */
export async function setTag(
  database: Database,
  caller: WorkspaceCaller,
  repoName: RepoName,
  { name, commitId, mustExist }: { readonly name: string; readonly commitId: string; readonly mustExist: boolean },
): Promise<CommitTag> {
  return database.transaction(async (tx) => {
    const repo = await lockOwnRepo(tx, caller.workspaceId, repoName);
    if (mustExist) await readTag(tx, repo.id, name);
    const set = await tx.execute(
      `INSERT INTO repo_tags (id, repo_id, name, commit_id)
       SELECT $1, repo_id, $3, id FROM repo_commits WHERE id = $4 AND repo_id = $2
       ON CONFLICT (repo_id, name) DO UPDATE SET commit_id = excluded.commit_id, updated_at = now()`,
      [randomUUID(), repo.id, name, commitId],
    );
    if (set === 0) throw runlakeError('NOT_FOUND', { what: 'Commit' });
    const [tags] = await tx.query<{ count: number }>('SELECT count(*) AS count FROM repo_tags WHERE repo_id = $1', [
      repo.id,
    ]);
    if (tags!.count > maxTags) throw runlakeError('REPO_FULL', { limit: maxTags, what: 'tags' });
    return readTag(tx, repo.id, name);
  });
}

/** Deletes a tag. @throws NOT_FOUND */
export async function deleteTag(
  database: Database,
  caller: WorkspaceCaller,
  repoName: RepoName,
  name: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    const repo = await lockOwnRepo(tx, caller.workspaceId, repoName);
    const deleted = await tx.execute('DELETE FROM repo_tags WHERE repo_id = $1 AND name = $2', [repo.id, name]);
    if (deleted === 0) throw createNotFoundError();
  });
}
