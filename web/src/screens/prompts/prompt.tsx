import { useQuery } from '@tanstack/react-query';
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router';
import { readFrom } from '../../api/client.ts';
import { usePermission, useWorkspaces } from '../../api/session.ts';
import { Crumb, CrumbSeparator } from '../../components/crumb.tsx';
import { Heading } from '../../components/heading.tsx';
import { useShortcuts } from '../../components/shortcuts.tsx';
import { EmptyState, ErrorState, PartProblem, QueryState } from '../../components/states.tsx';
import { showInvisible, Value } from '../../components/text.tsx';
import { CommitList } from './commit-list.tsx';
import { CommitView } from './commit-view.tsx';
import type { PromptSearch } from './search.ts';
import { ownOwner, toCommit, useCommit, useCommits, useTags } from './use-commits.ts';
import './prompts.css';

const latest = 'latest';

/** A prompt, agent or skill: its commits, and the selected commit. */
export function Prompt() {
  const { owner = ownOwner, repo = '', commit: selected = latest } = useParams({ strict: false });
  const name = { owner, repo };
  const search = useSearch({ strict: false }) as PromptSearch;
  const navigate = useNavigate();
  const { current } = useWorkspaces();
  const canUpdate = usePermission('prompts:update');
  const found = useQuery({
    queryKey: ['prompt', name],
    ...readFrom('get', '/api/v1/repos/{owner}/{repo}', { path: name }),
  });
  const hasCommits = (found.data?.repo.num_commits ?? 0) > 0;
  const commits = useCommits(name);
  const tags = useTags(name);
  const content = useCommit(name, selected, hasCommits);
  const rows = commits.data?.pages.flatMap((page) => page.commits) ?? [];
  const at = rows.findIndex(({ commit_hash }) => commit_hash === content.data?.commit_hash);
  const show = (hash: string | undefined) => {
    if (hash !== undefined)
      void navigate({
        ...toCommit(name, hash.slice(0, 8)),
        search: { tab: search.tab },
        replace: true,
      });
  };
  useShortcuts({
    j: { label: 'Next commit, which is older', run: () => show(rows[at + 1]?.commit_hash) },
    k: { label: 'Previous commit, which is newer', run: () => show(rows[Math.max(0, at - 1)]?.commit_hash) },
  });
  if (found.error && !found.data) return <ErrorState isPage error={found.error} onRetry={() => void found.refetch()} />;
  const info = found.data?.repo;
  const isOwn = info === undefined || info.tenant_id === current?.id;
  return (
    <div className="prompt">
      <header className="page-head">
        {isOwn ? (
          <Crumb to="/prompts" label="Prompts" />
        ) : (
          <>
            <Link to="/prompts" search={{ public: true }} className="crumb">
              Public prompts
            </Link>
            <CrumbSeparator />
          </>
        )}
        <Heading text={owner === ownOwner ? repo : `${owner}/${repo}`} />
        {info && <span className="badge">{info.repo_type}</span>}
        {info?.is_public && <span className="badge">public</span>}
        {!isOwn && <span className="badge">read-only</span>}
        {info?.is_archived && <span className="badge">archived</span>}
        {info?.tags.map((tag) => (
          <span key={tag} className="chip">
            <Value text={tag} />
          </span>
        ))}
      </header>
      {info?.description && <p className="prompt-description muted">{showInvisible(info.description)}</p>}
      {info && !hasCommits ? (
        <EmptyState title="There are no commits yet">
          {isOwn ? (
            <>
              Push one with <code>client.pushPrompt('{showInvisible(repo)}', …)</code> of the SDK.
            </>
          ) : (
            'Its workspace has not pushed one.'
          )}
        </EmptyState>
      ) : (
        <>
          <PartProblem what="The tags" query={tags} />
          <div className="prompt-panes">
            <CommitList
              name={name}
              pages={commits}
              tags={tags.data ?? []}
              currentHash={content.data?.commit_hash}
              search={search}
            />
            <div className="prompt-content">
              <QueryState query={content}>
                {(data) => (
                  <CommitView
                    name={name}
                    canUpdate={isOwn && canUpdate}
                    isDirectory={info?.repo_type === 'agent' || info?.repo_type === 'skill'}
                    content={data}
                    commit={rows[at]}
                    commits={rows}
                    tags={tags.data ?? []}
                    search={search}
                    onSearch={(changes) =>
                      void navigate({
                        ...toCommit(name, selected),
                        search: { ...search, ...changes },
                        replace: true,
                      })
                    }
                  />
                )}
              </QueryState>
              {info?.readme && (
                <details className="prompt-readme">
                  <summary>Readme</summary>
                  <pre>{showInvisible(info.readme)}</pre>
                </details>
              )}
            </div>
          </div>
        </>
      )}
    </div>
  );
}
