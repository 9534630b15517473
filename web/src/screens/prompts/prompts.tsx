import { keepPreviousData, useInfiniteQuery } from '@tanstack/react-query';
import { getRouteApi, Link, useNavigate } from '@tanstack/react-router';
import { useDeferredValue } from 'react';
import { call } from '../../api/client.ts';
import { useSession, useWorkspaces } from '../../api/session.ts';
import { Choices } from '../../components/choices.tsx';
import { formatCount } from '../../components/format.ts';
import { Heading } from '../../components/heading.tsx';
import { PlainTable } from '../../components/plain-table.tsx';
import { SearchField } from '../../components/search-field.tsx';
import { EmptyState, MoreButton, PagesState } from '../../components/states.tsx';
import { TextCell, TimeCell, Value } from '../../components/text.tsx';
import { type PromptsSearch, type RepoKind, repoKinds } from './search.ts';
import { ownOwner, toRepo } from './use-commits.ts';
import './prompts.css';

const route = getRouteApi('/shell/prompts');
const pageSize = 100;
const kinds = Object.keys(repoKinds) as RepoKind[];
const kindChoices = [{ value: undefined, label: 'All' }, ...kinds.map((value) => ({ value, label: repoKinds[value] }))];
const workspaceChoices = [
  { value: false, label: 'This workspace' },
  { value: true, label: 'Public' },
];

/** The prompts, agents and skills of the workspace. */
export function Prompts() {
  const { text = '', kind, public: isPublic = false } = route.useSearch();
  const { current } = useWorkspaces();
  const { public_prompts: areShared } = useSession().application;
  const navigate = useNavigate({ from: '/prompts' });
  const change = (changes: PromptsSearch) =>
    void navigate({ search: (before) => ({ ...before, ...changes }), replace: true });
  const wanted = useDeferredValue(text);
  const repos = useInfiniteQuery({
    queryKey: ['prompts', wanted, kind, isPublic],
    queryFn: ({ pageParam, signal }) =>
      call('get', '/api/v1/repos', {
        query: {
          repo_types: kind === undefined ? [...kinds, 'file'] : [kind],
          limit: pageSize,
          offset: pageParam,
          query: wanted || undefined,
          is_public: isPublic ? 'true' : undefined,
        },
        signal,
      }),
    initialPageParam: 0,
    getNextPageParam: ({ total }, pages) => (pages.length * pageSize < total ? pages.length * pageSize : undefined),
    placeholderData: keepPreviousData,
  });
  const rows = repos.data?.pages.flatMap((page) => page.repos) ?? [];
  const empty =
    isPublic && text === '' && kind === undefined ? (
      <EmptyState title="There are no public prompts">
        A workspace that has a handle can publish prompts. Every workspace of this installation can read them here.
      </EmptyState>
    ) : text === '' && kind === undefined ? (
      <EmptyState title="There are no prompts yet">
        Push one with <code>client.pushPrompt(name, …)</code> of the SDK.
      </EmptyState>
    ) : (
      <EmptyState title="Nothing matches">Change or clear the search.</EmptyState>
    );
  return (
    <>
      <header className="page-head">
        <Heading text="Prompts" />
        <span className="spacer" />
        <Choices
          label="Workspaces"
          choices={workspaceChoices}
          chosen={isPublic}
          onChoose={(chosen) => change({ public: chosen || undefined })}
        />
        <Choices label="Kind" choices={kindChoices} chosen={kind} onChoose={(chosen) => change({ kind: chosen })} />
        <SearchField
          label="Find a prompt"
          maxLength={1000}
          value={text}
          onChange={(next) => change({ text: next || undefined })}
        />
      </header>
      {isPublic && !areShared ? (
        <EmptyState title="Public prompts are not shared">
          Workspaces see only their own prompts, until the operator sets <code>RUNLAKE_SHARE_PUBLIC_PROMPTS=true</code>.
        </EmptyState>
      ) : (
        <PagesState pages={repos} rows={rows} label="Loading prompts" empty={empty}>
          <PlainTable
            label="Prompts"
            columns={[
              'Name',
              'Kind',
              'Description',
              'Tags',
              { number: 'Commits' },
              'Latest',
              { number: 'Reads' },
              'Changed',
            ]}
            footer={<MoreButton pages={repos} label="Show more prompts" />}
          >
            {rows.map((repo) => (
              <tr key={repo.id}>
                <td className="text-cell">
                  <Link
                    {...toRepo({
                      owner: repo.tenant_id === current?.id ? ownOwner : (repo.owner ?? ownOwner),
                      repo: repo.repo_handle,
                    })}
                  >
                    <Value text={isPublic ? repo.full_name : repo.repo_handle} />
                  </Link>
                </td>
                <td>
                  {repo.repo_type} {repo.is_public && <span className="badge">public</span>}
                </td>
                <td className="text-cell muted">
                  <Value text={repo.description ?? ''} />
                </td>
                <TextCell text={repo.tags.join(', ')} />
                <td className="number">{formatCount(repo.num_commits)}</td>
                <td className="mono">{repo.last_commit_hash?.slice(0, 8) ?? '–'}</td>
                <td className="number">{formatCount(repo.num_downloads)}</td>
                <TimeCell at={repo.updated_at} />
              </tr>
            ))}
          </PlainTable>
        </PagesState>
      )}
    </>
  );
}
