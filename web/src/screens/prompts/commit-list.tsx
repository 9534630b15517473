import { Link } from '@tanstack/react-router';
import { MoreButton, NoData } from '../../components/states.tsx';
import { Time, Value } from '../../components/text.tsx';
import type { PromptSearch } from './search.ts';
import { type RepoName, type Tag, toCommit, type useCommits } from './use-commits.ts';

/** The commits of a repo as links, newest first, with their tags. */
export function CommitList({
  name,
  pages,
  tags,
  currentHash,
  search,
}: {
  readonly name: RepoName;
  readonly pages: ReturnType<typeof useCommits>;
  readonly tags: readonly Tag[];
  readonly currentHash: string | undefined;
  readonly search: PromptSearch;
}) {
  if (!pages.data) return <NoData query={pages} label="Loading commits" />;
  const commits = pages.data.pages.flatMap((page) => page.commits);
  return (
    <nav className="commit-list" aria-label="Commits">
      <ol>
        {commits.map(({ id, commit_hash, description, full_name, created_at }) => (
          <li key={id} aria-current={commit_hash === currentHash ? 'true' : undefined}>
            <Link {...toCommit(name, commit_hash.slice(0, 8))} search={{ tab: search.tab }} replace className="commit">
              <span className="row wrap">
                <span className="mono">{commit_hash.slice(0, 8)}</span>
                {tags
                  .filter(({ commit_id }) => commit_id === id)
                  .map(({ tag_name }) => (
                    <span key={tag_name} className="badge">
                      <Value text={tag_name} />
                    </span>
                  ))}
              </span>
              {description && <Value text={description} />}
              <span className="muted row">
                <Time at={created_at} />
                {full_name && <Value text={full_name} />}
              </span>
            </Link>
          </li>
        ))}
      </ol>
      <MoreButton pages={pages} label="Show older commits" />
    </nav>
  );
}
