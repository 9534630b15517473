/**
 * Commits of repos.
 *
 * Invariant: the commits of a repo form one history without branches: the parent of each commit is the previous commit.
 *
 *   1. A commit locks the row of its repo, so commits to one repo run one after the other.
 *   2. If the client names a parent, it must be the latest commit. A client that edited an older commit therefore gets
 *      an error instead of undoing the commits in between. A repeated request changes nothing.
 *   3. The hash is the SHA-256 of the parent's hash and the content, so equal histories have equal hashes.
 */
import { createHash, randomUUID } from 'node:crypto';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { type CommitContent, type CommitRecord, latest, readCommit } from './commit.ts';
import { type LockedRepo, lockOwnRepo, type RepoName } from './repo.ts';

/** Maximum number of commits per repo. */
const maxCommits = 10_000;

export interface NewCommit {
  /** Hash of the latest commit, or at least its first 8 characters. */
  readonly parentCommit?: string | null | undefined;
  readonly description?: string | null | undefined;
  /**
   * Returns the new content as JSON; returns undefined if nothing changes, in which case the latest commit is the
   * result.
   */
  createContent(repo: LockedRepo, parent: PossibleParent | undefined, tx: Sql): Promise<string | undefined>;
}

/** Creates a commit. @throws NOT_FOUND; COMMIT_CONFLICT; REPO_FULL; the errors of `createContent`. */
export async function createCommit(
  database: Database,
  caller: WorkspaceCaller,
  name: RepoName,
  { parentCommit, description = null, createContent }: NewCommit,
): Promise<CommitRecord> {
  return database.transaction(async (tx) => {
    const repo = await lockOwnRepo(tx, caller.workspaceId, name);
    const parent = await readPossibleParent(tx, repo.lastCommitId);
    if (parentCommit != null && parentCommit !== latest && !isNamed(parent, parentCommit)) {
      // SDKs repeat a request if they lose the response. Then the latest commit is the requested one.
      const previous = await readPossibleParent(tx, parent?.parent_id);
      const isRepeated =
        isNamed(previous, parentCommit) &&
        parent?.description === description &&
        parent.manifest === (await createContent(repo, previous, tx));
      if (isRepeated) return readCommit(tx, repo.id, parent.id);
      throw createParentError(parent);
    }
    const manifest = await createContent(repo, parent, tx);
    if (manifest === undefined) return readCommit(tx, repo.id, parent!.id);
    if (repo.commitCount >= maxCommits) throw runlakeError('REPO_FULL', { limit: maxCommits, what: 'commits' });
    const id = randomUUID();
    await tx.execute(
      `INSERT INTO repo_commits (id, repo_id, number, hash, parent_id, manifest, description, created_by)
       VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
      [
        id,
        repo.id,
        repo.commitCount + 1,
        hashCommit(parent?.hash, manifest),
        parent?.id ?? null,
        manifest,
        description,
        caller.userId,
      ],
    );
    await tx.execute(
      'UPDATE repos SET last_commit_id = $2, commit_count = commit_count + 1, updated_at = now() WHERE id = $1',
      [repo.id, id],
    );
    return readCommit(tx, repo.id, id);
  });
}

/**
 * Commits the manifest of a prompt. A repeated request gets the commit that exists.
 *
 * @throws the errors of {@link createCommit}; COMMIT_CONFLICT if the manifest is unchanged.
 */
export function commitPrompt(
  database: Database,
  caller: WorkspaceCaller,
  name: RepoName,
  { manifest, ...commit }: Omit<NewCommit, 'createContent'> & { readonly manifest: string },
): Promise<CommitRecord> {
  return createCommit(database, caller, name, {
    ...commit,
    createContent: async ({ repoType, lastCommitId }, parent) => {
      if (repoType !== 'prompt' && repoType !== 'file') throw runlakeError('NOT_FOUND', { what: 'Prompt' });
      if (parent?.manifest === manifest && parent.id === lastCommitId) {
        // SDKs name no parent for the first commit.
        const isRepeated = commit.parentCommit == null && parent.parent_id === null;
        if (isRepeated && parent.description === (commit.description ?? null)) return undefined;
        throw runlakeError('COMMIT_CONFLICT', {
          reason: 'Nothing to commit: the prompt has not changed since the latest commit.',
        });
      }
      return manifest;
    },
  });
}

function hashCommit(parentHash: string | undefined, manifest: string): string {
  return createHash('sha256')
    .update(`${parentHash ?? ''}\n`)
    .update(manifest)
    .digest('hex');
}

interface PossibleParent extends CommitContent {
  readonly parent_id: string | null;
}

async function readPossibleParent(tx: Sql, id: string | null | undefined): Promise<PossibleParent | undefined> {
  const [found] = await tx.query<PossibleParent>(
    'SELECT id, hash, description, manifest, parent_id FROM repo_commits WHERE id = $1',
    [id ?? null],
  );
  return found;
}

/** Returns whether a client named this commit, by its hash or the beginning of it. */
const isNamed = (commit: CommitContent | undefined, hash: string): boolean =>
  commit?.hash.startsWith(hash.toLowerCase()) ?? false;

function createParentError(parent: CommitContent | undefined): Error {
  const found = parent === undefined ? 'the repo has no commit' : `the latest commit is ${parent.hash.slice(0, 8)}`;
  return runlakeError('COMMIT_CONFLICT', { reason: `The parent is not the latest commit: ${found}.` });
}
