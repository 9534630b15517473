import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import type { WorkspaceCaller } from '../tenants/caller.ts';
import { type CommitContent, type CommitRecord, latest, readCommitContent } from './commit.ts';
import { findReadableRepo, type HubDeps, type RepoName, type RepoType } from './repo.ts';
import { createCommit, type NewCommit } from './write-commit.ts';

export const directoryTypes = ['agent', 'skill'] as const satisfies readonly RepoType[];
type DirectoryType = (typeof directoryTypes)[number];

/** Maximum number of entries per directory. */
const maxEntries = 1_000;
/** Maximum size of a directory, as JSON. */
export const maxDirectoryBytes = 8 * 1024 ** 2;

/** A file, or a link to an agent or skill. */
export type Entry =
  | { readonly type: 'file'; readonly content: string }
  | {
      readonly type: DirectoryType;
      readonly repo_handle: string;
      readonly owner?: string | null | undefined;
      readonly commit_id?: string | null | undefined;
      readonly commit_hash?: string | null | undefined;
    };

/** Map from path to entry; null deletes the entry. */
export type EntryChanges = Readonly<Record<string, Entry | null>>;

const createNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Agent or skill' });

/**
 * Reads the directory of an agent or skill. `name` has the same meaning as in {@link readCommitContent}.
 *
 * @throws NOT_FOUND
 */
export async function readDirectory(
  deps: HubDeps,
  caller: WorkspaceCaller,
  repo: RepoName,
  { name = latest, type }: { readonly name?: string | undefined; readonly type?: DirectoryType | undefined },
): Promise<CommitContent> {
  const { id, repoType } = await findReadableRepo(deps, caller, repo);
  if (!isDirectoryType(repoType) || (type && type !== repoType)) throw createNotFoundError();
  return readCommitContent(deps.database, id, name);
}

/**
 * Commits changes to the directory of an agent or skill. Entries that are not in `changes` stay. If nothing changes,
 * the function returns the latest commit, so that a client can repeat a request whose response was lost.
 *
 * @throws NOT_FOUND; INVALID_REQUEST for a path or a link that cannot be used; COMMIT_CONFLICT; REPO_FULL.
 */
export async function commitDirectory(
  deps: HubDeps,
  caller: WorkspaceCaller,
  repo: RepoName,
  { changes, parentCommit }: { readonly changes: EntryChanges } & Pick<NewCommit, 'parentCommit'>,
): Promise<CommitRecord> {
  const entries = await resolveEntries(deps, caller, changes);
  return createCommit(deps.database, caller, repo, {
    parentCommit,
    createContent: async ({ repoType }, parent) => {
      if (!isDirectoryType(repoType)) throw createNotFoundError();
      const manifest = applyChanges(parent?.manifest ?? '{}', entries);
      return manifest === parent?.manifest ? undefined : manifest;
    },
  });
}

function isDirectoryType(type: RepoType): type is DirectoryType {
  return (directoryTypes as readonly RepoType[]).includes(type);
}

/**
 * Applies changes to a directory and returns it as JSON with sorted paths, so that equal directories have equal texts.
 */
function applyChanges(directory: string, changes: ReadonlyMap<string, Entry | null>): string {
  const entries = new Map(Object.entries(JSON.parse(directory) as Record<string, Entry>));
  for (const [path, entry] of changes) {
    if (entry === null) entries.delete(path);
    else entries.set(path, entry);
  }
  if (entries.size > maxEntries) throw runlakeError('REPO_FULL', { limit: maxEntries, what: 'files' });
  const sorted = [...entries].sort(([a], [b]) => (a < b ? -1 : 1));
  const manifest = JSON.stringify(Object.fromEntries(sorted));
  if (Buffer.byteLength(manifest) > maxDirectoryBytes) {
    throw runlakeError('REPO_FULL', { limit: maxDirectoryBytes, what: 'bytes' });
  }
  return manifest;
}

/** Checks paths and links, and keeps only the known fields of each entry. */
async function resolveEntries(
  deps: HubDeps,
  caller: WorkspaceCaller,
  changes: EntryChanges,
): Promise<Map<string, Entry | null>> {
  const paths = Object.keys(changes);
  if (paths.length > maxEntries) throw runlakeError('REPO_FULL', { limit: maxEntries, what: 'files' });
  const entries = new Map<string, Entry | null>();
  for (const path of paths) {
    if (!isPath(path)) throw createEntryError(path, 'must be a relative path without empty, "." and ".." parts');
    const entry = changes[path] ?? null;
    if (entry === null) entries.set(path, null);
    else if (entry.type === 'file') entries.set(path, { type: 'file', content: entry.content });
    else entries.set(path, await resolveLink(deps, caller, path, entry));
  }
  return entries;
}

/**
 * Returns whether `path` is a valid path: at most 512 characters, without control characters. The check matters because
 * other programs write the files to disk.
 */
function isPath(path: string): boolean {
  const isText = path.length <= 512 && !/[\\\p{Cc}\p{Surrogate}]/u.test(path);
  return isText && path.split('/').every((part) => !/^\.{0,2}$/.test(part));
}

/**
 * Resolves a link. A link to a commit gets the id and hash of the commit; a link without a commit follows the latest
 * commit.
 */
async function resolveLink(
  deps: HubDeps,
  caller: WorkspaceCaller,
  path: string,
  { type, repo_handle, owner, commit_id, commit_hash }: Exclude<Entry, { type: 'file' }>,
): Promise<Entry> {
  const link = { type, repo_handle, ...(owner == null ? {} : { owner }) };
  try {
    const repo = await findReadableRepo(deps, caller, { owner: owner ?? '-', handle: repo_handle });
    if (repo.repoType !== type) throw createEntryError(path, `links to a repo of type ${repo.repoType}, not ${type}`);
    if (commit_id == null && commit_hash == null) return link;
    return { ...link, ...(await readLinkedCommit(deps.database, repo.id, commit_id, commit_hash)) };
  } catch (error) {
    if ((error as { code?: unknown }).code !== 'NOT_FOUND') throw error;
    throw createEntryError(path, 'links to a repo or commit that does not exist');
  }
}

async function readLinkedCommit(
  database: Sql,
  repoId: string,
  id: string | null | undefined,
  hash: string | null | undefined,
): Promise<{ commit_id: string; commit_hash: string }> {
  const [found] = await database.query<{ commit_id: string; commit_hash: string }>(
    `SELECT id AS commit_id, hash AS commit_hash FROM repo_commits
     WHERE repo_id = $1 AND ($2::uuid IS NULL OR id = $2) AND ($3::text IS NULL OR starts_with(hash, $3))
     ORDER BY number DESC LIMIT 1`,
    [repoId, id ?? null, hash?.toLowerCase() ?? null],
  );
  if (!found) throw runlakeError('NOT_FOUND', { what: 'Commit' });
  return found;
}

function createEntryError(path: string, msg: string): Error {
  const field = { loc: ['body', 'files', path.slice(0, 512)], msg, type: 'value_error' };
  return runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}
