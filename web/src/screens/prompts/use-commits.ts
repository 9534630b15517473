import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { type Answer, call, callText } from '../../api/client.ts';
import { parseExact } from '../../components/values/exact-json.ts';

const pageSize = 100;
/** The owner of the repos of the workspace of the request. */
export const owner = '-';

export type Commit = Answer<'get', '/api/v1/commits/{owner}/{repo}'>['commits'][number];
export type Tag = Answer<'get', '/api/v1/repos/{owner}/{repo}/tags'>[number];
export type CommitContent = Answer<'get', '/api/v1/commits/{owner}/{repo}/{commit}'>;

/** Reads the commits of a repo, newest first, page by page. */
export function useCommits(repo: string) {
  return useInfiniteQuery({
    queryKey: ['prompt', repo, 'commits'],
    queryFn: ({ pageParam, signal }) =>
      call('get', '/api/v1/commits/{owner}/{repo}', {
        path: { owner, repo },
        query: { limit: pageSize, offset: pageParam },
        signal,
      }),
    initialPageParam: 0,
    getNextPageParam: ({ total }, pages) => (pages.length * pageSize < total ? pages.length * pageSize : undefined),
  });
}

/** Reads the tags of the commits of a repo. */
export function useTags(repo: string) {
  return useQuery({
    queryKey: ['prompt', repo, 'tags'],
    queryFn: ({ signal }) => call('get', '/api/v1/repos/{owner}/{repo}/tags', { path: { owner, repo }, signal }),
  });
}

/** Reads the manifest of a commit, with its model. `commit` is a hash, at least 8 characters of one, a tag or `latest`. */
export function useCommit(repo: string, commit: string, isEnabled = true) {
  return useQuery({
    queryKey: ['prompt', repo, 'commit', commit],
    queryFn: async ({ signal }) => {
      const text = await callText('get', '/api/v1/commits/{owner}/{repo}/{commit}', {
        path: { owner, repo, commit },
        query: { include_model: true, is_view: true },
        signal,
      });
      return parseExact(text) as CommitContent;
    },
    enabled: isEnabled,
    placeholderData: keepPreviousData,
  });
}
