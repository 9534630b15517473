import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { type Answer, call, callText, readFrom } from '../../api/client.ts';
import { parseExact } from '../../components/values/exact-json.ts';

const pageSize = 100;
/** The owner of the repos of the workspace of the request. */
export const ownOwner = '-';

/** Names a repo of the workspace, or a public one of another workspace by the handle of that. */
export interface RepoName {
  readonly owner: string;
  readonly repo: string;
}

export type Commit = Answer<'get', '/api/v1/commits/{owner}/{repo}'>['commits'][number];
export type Tag = Answer<'get', '/api/v1/repos/{owner}/{repo}/tags'>[number];
export type CommitContent = Answer<'get', '/api/v1/commits/{owner}/{repo}/{commit}'>;

/** Reads the commits of a repo, newest first, page by page. */
export function useCommits(name: RepoName) {
  return useInfiniteQuery({
    queryKey: ['prompt', name, 'commits'],
    queryFn: ({ pageParam, signal }) =>
      call('get', '/api/v1/commits/{owner}/{repo}', {
        path: { ...name },
        query: { limit: pageSize, offset: pageParam },
        signal,
      }),
    initialPageParam: 0,
    getNextPageParam: ({ total }, pages) => (pages.length * pageSize < total ? pages.length * pageSize : undefined),
  });
}

/** Reads the tags of the commits of a repo. */
export function useTags(name: RepoName) {
  return useQuery({
    queryKey: ['prompt', name, 'tags'],
    ...readFrom('get', '/api/v1/repos/{owner}/{repo}/tags', { path: { ...name } }),
  });
}

/** Reads the manifest of a commit, with its model. `commit` is a hash, at least 8 characters of one, a tag or `latest`. */
export function useCommit(name: RepoName, commit: string, isEnabled = true) {
  return useQuery({
    queryKey: ['prompt', name, 'commit', commit],
    queryFn: async ({ signal }) => {
      const text = await callText('get', '/api/v1/commits/{owner}/{repo}/{commit}', {
        path: { ...name, commit },
        query: { include_model: true, is_view: true },
        signal,
      });
      return parseExact(text) as CommitContent;
    },
    enabled: isEnabled,
    placeholderData: keepPreviousData,
  });
}

/** Returns where a repo is shown, and where one of its commits is. */
export function toRepo({ owner, repo }: RepoName) {
  return owner === ownOwner
    ? ({ to: '/prompts/$repo', params: { repo } } as const)
    : ({ to: '/hub/$owner/$repo', params: { owner, repo } } as const);
}
export function toCommit({ owner, repo }: RepoName, commit: string) {
  return owner === ownOwner
    ? ({ to: '/prompts/$repo/$commit', params: { repo, commit } } as const)
    : ({ to: '/hub/$owner/$repo/$commit', params: { owner, repo, commit } } as const);
}
