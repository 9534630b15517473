import type { Assistant, AssistantGraph, GraphSchema, Run, Thread, ThreadState } from '@langchain/langgraph-sdk';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { offsetPages } from '../../api/client.ts';
import { useAgentClient } from './agent-client.ts';
import type { DeploymentSearch } from './search.ts';

/** Queries of the screens to the agent server of a deployment. */

const pageSize = 50;

export function useAssistants() {
  const { key, request } = useAgentClient();
  return useInfiniteQuery({
    queryKey: [...key, 'assistants'],
    queryFn: ({ pageParam, signal }) =>
      request<Assistant[]>('post', '/assistants/search', { body: { limit: pageSize, offset: pageParam }, signal }),
    ...offsetPages(pageSize),
  });
}

function useAssistantPart<T>(assistantId: string | undefined, part: string, method = 'get', body?: object) {
  const { key, request } = useAgentClient();
  return useQuery({
    queryKey: [...key, 'assistant', assistantId, part],
    queryFn: ({ signal }) => request<T>(method, `/assistants/${assistantId}/${part}`, { body, signal }),
    enabled: assistantId !== undefined,
    retry: false,
  });
}
export const useGraph = (assistantId: string | undefined) =>
  useAssistantPart<AssistantGraph>(assistantId, 'graph?xray=true');
export const useSchemas = (assistantId: string | undefined) => useAssistantPart<GraphSchema>(assistantId, 'schemas');
export const useVersions = (assistantId: string | undefined) =>
  useAssistantPart<Assistant[]>(assistantId, 'versions', 'post', { limit: pageSize });

/** Lists threads, most recently changed first. `find` is an id, or `key=value` of the metadata. */
export function useThreads({ find, status }: Pick<DeploymentSearch, 'find' | 'status'>) {
  const { key, request } = useAgentClient();
  const [, name, value] = /^\s*([^=]+?)\s*=\s*(.*?)\s*$/.exec(find ?? '') ?? [];
  const isId = /^\s*[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\s*$/i.test(find ?? '');
  const isUsable = find === undefined || isId || name !== undefined;
  const threads = useInfiniteQuery({
    queryKey: [...key, 'threads', find, status],
    queryFn: ({ pageParam, signal }) =>
      request<Thread[]>('post', '/threads/search', {
        body: {
          limit: pageSize,
          offset: pageParam,
          sort_by: 'updated_at',
          sort_order: 'desc',
          select: ['thread_id', 'status', 'created_at', 'updated_at', 'metadata', 'interrupts', 'error'],
          ...(isId && { ids: [find?.trim()] }),
          ...(name !== undefined && { metadata: { [name]: value } }),
          ...(status && { status }),
        },
        signal,
      }),
    ...offsetPages(pageSize),
    enabled: isUsable,
  });
  return { threads, isUsable };
}

/** Returns the assistant that last ran on a thread; undefined if the thread does not name one. */
export function useAssistantOfThread(threadId: string | undefined): string | undefined {
  const { key, request } = useAgentClient();
  const thread = useQuery({
    queryKey: [...key, 'thread', threadId, 'itself'],
    queryFn: ({ signal }) => request<Thread>('get', `/threads/${threadId}`, { signal }),
    enabled: threadId !== undefined,
  });
  const { assistant_id: id } = thread.data?.metadata ?? {};
  return typeof id === 'string' ? id : undefined;
}

/** The newest state of a thread, or that at a checkpoint. */
export function useThreadState(threadId: string | undefined, checkpointId?: string) {
  const { key, request } = useAgentClient();
  return useQuery({
    queryKey: [...key, 'thread', threadId, 'state', checkpointId],
    queryFn: ({ signal }) =>
      request<ThreadState>('get', `/threads/${threadId}/state${checkpointId ? `/${checkpointId}` : ''}`, {
        query: { subgraphs: true },
        signal,
      }),
    enabled: threadId !== undefined,
  });
}

export function useHistory(threadId: string) {
  const { key, request } = useAgentClient();
  return useInfiniteQuery({
    queryKey: [...key, 'thread', threadId, 'history'],
    queryFn: ({ pageParam, signal }) =>
      request<ThreadState[]>('post', `/threads/${threadId}/history`, {
        body: { limit: pageSize, ...(pageParam && { before: { checkpoint_id: pageParam } }) },
        signal,
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) =>
      page.length < pageSize ? undefined : (page.at(-1)?.checkpoint?.checkpoint_id ?? undefined),
  });
}

/** The runs of a thread, newest first. */
export function useThreadRuns(threadId: string | undefined) {
  const { key, request } = useAgentClient();
  return useQuery({
    queryKey: [...key, 'thread', threadId, 'runs'],
    queryFn: ({ signal }) => request<Run[]>('get', `/threads/${threadId}/runs`, { query: { limit: pageSize }, signal }),
    enabled: threadId !== undefined,
  });
}
