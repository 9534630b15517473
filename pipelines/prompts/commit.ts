import { sql } from 'kysely';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { fetchRows, listPage, type Page, type PageRequest, statements } from '../../infra/postgres/list-page.ts';
import { findPath } from '../ingest/json/find.ts';

/** A commit as returned in responses, without its content. */
export interface CommitRecord {
  readonly id: string;
  readonly repo_id: string;
  readonly commit_hash: string;
  readonly parent_id: string | null;
  readonly parent_commit_hash: string | null;
  readonly description: string | null;
  /** Name of the author. */
  readonly full_name: string | null;
  readonly num_downloads: number;
  readonly num_views: number;
  readonly created_at: string;
  readonly updated_at: string;
}

export const latest = 'latest';

/** Minimum length of a hash prefix; shorter names are tags. */
export const minHashLength = 8;
export const maxHashLength = 64;

function selectCommits(repoId: string) {
  return statements
    .selectFrom('repo_commits')
    .leftJoin('repo_commits as parents', 'parents.id', 'repo_commits.parent_id')
    .leftJoin('users', 'users.id', 'repo_commits.created_by')
    .select([
      'repo_commits.id',
      'repo_commits.repo_id',
      'repo_commits.hash as commit_hash',
      'repo_commits.parent_id',
      'parents.hash as parent_commit_hash',
      'repo_commits.description',
      'users.full_name',
      'repo_commits.download_count as num_downloads',
      'repo_commits.view_count as num_views',
      'repo_commits.created_at',
      'repo_commits.created_at as updated_at',
    ])
    .where('repo_commits.repo_id', '=', repoId);
}

/** Lists commits of a repo, newest first; with `tag`, only the commit that has the tag. */
export function listCommits(
  database: Sql,
  repoId: string,
  { tag, ...page }: PageRequest & { readonly tag?: string | undefined },
): Promise<Page<CommitRecord>> {
  const all = selectCommits(repoId);
  const taggedCommitId = sql<string>`(SELECT commit_id FROM repo_tags WHERE repo_id = ${repoId}::uuid AND name = ${tag})`;
  const query = tag === undefined ? all : all.where('repo_commits.id', '=', taggedCommitId);
  return listPage(database, query, { by: [sql.ref('repo_commits.number')], descending: true }, page);
}

/** Reads a commit by id. The caller must know that it exists. */
export async function readCommit(database: Sql, repoId: string, commitId: string): Promise<CommitRecord> {
  const [row] = await fetchRows(database, selectCommits(repoId).where('repo_commits.id', '=', commitId));
  return row!;
}

export interface CommitContent {
  readonly id: string;
  readonly hash: string;
  readonly description: string | null;
  /** The manifest as JSON, as it was sent. */
  readonly manifest: string;
}

/**
 * Reads the commit that a name refers to: `latest`, the prefix of a hash, or a tag. A hash takes precedence over a tag
 * of the same name.
 *
 * @throws NOT_FOUND
 */
export async function readCommitContent(database: Sql, repoId: string, name: string): Promise<CommitContent> {
  const columns = 'c.id, c.hash, c.description, c.manifest';
  const hash = name.length >= minHashLength ? name.toLowerCase() : null;
  const [found] =
    name === latest
      ? await database.query<CommitContent>(
          `SELECT ${columns} FROM repo_commits AS c JOIN repos ON repos.last_commit_id = c.id WHERE repos.id = $1`,
          [repoId],
        )
      : await database.query<CommitContent>(
          `SELECT ${columns} FROM repo_commits AS c
           LEFT JOIN repo_tags AS t ON t.commit_id = c.id AND t.repo_id = $1 AND t.name = $2
           WHERE c.repo_id = $1 AND (t.name IS NOT NULL OR starts_with(c.hash, $3))
           ORDER BY starts_with(c.hash, $3) DESC NULLS LAST, c.number DESC LIMIT 1`,
          [repoId, name, hash],
        );
  if (!found) throw runlakeError('NOT_FOUND', { what: 'Commit' });
  return found;
}

/**
 * Reads the content of commits, in the given order, up to a total of `maxBytes`. Returns a map from commit id to JSON
 * as it was sent.
 */
export async function readManifests(
  database: Sql,
  commitIds: readonly string[],
  maxBytes: number,
): Promise<ReadonlyMap<string, string>> {
  const rows = await database.query<{ id: string; manifest: string }>(
    `SELECT id, manifest FROM (
       SELECT c.id, manifest, sum(octet_length(manifest)) OVER (ORDER BY position) AS bytes
       FROM unnest($1::uuid[]) WITH ORDINALITY AS asked (id, position) JOIN repo_commits AS c ON c.id = asked.id) AS sized
     WHERE bytes <= $2`,
    [commitIds, maxBytes],
  );
  return new Map(rows.map(({ id, manifest }) => [id, manifest]));
}

/** Last part of the LangChain id of an object in which a prompt is piped into a model. */
const sequenceClassName = 'RunnableSequence';

/**
 * If the manifest is a prompt piped into a model, returns only the prompt, byte for byte; otherwise returns the
 * manifest unchanged. SDKs commit both together, but expect only the prompt unless they request the model.
 */
export function stripModel(manifest: string): string {
  if (!manifest.includes(sequenceClassName)) return manifest;
  const bytes = Buffer.from(manifest);
  const at = (...path: string[]) => findPath(bytes, 0, bytes.length, path);
  const id = at('id');
  const first = at('kwargs', 'first');
  const firstId = at('kwargs', 'first', 'id');
  if (id?.kind !== 'array' || first?.kind !== 'object' || firstId?.kind !== 'array') return manifest;
  const names = (range: { start: number; end: number }) =>
    JSON.parse(bytes.toString('utf8', range.start, range.end)) as unknown[];
  if (names(id).at(-1) !== sequenceClassName || !names(firstId).includes('prompts')) return manifest;
  return bytes.toString('utf8', first.start, first.end);
}
