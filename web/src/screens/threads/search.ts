import { readText } from '../../read-search.ts';
import { readTracesSearch, type TracesSearch } from '../traces/search.ts';

/** Search parameters of the threads screen. */
export interface ThreadsSearch extends Pick<TracesSearch, 'range' | 'from' | 'until' | 'filter'> {
  /**
   * Id of the thread to show instead of the list. It is not part of the path, because clients choose ids, which can
   * contain slashes or be `..`.
   */
  readonly thread?: string | undefined;
}

export function readThreadsSearch(search: Record<string, unknown>): ThreadsSearch {
  const { range, from, until, filter } = readTracesSearch(search);
  return { range, from, until, filter, thread: readText(search.thread) };
}

/** Returns the filter that selects the runs of a thread. */
export const buildThreadFilter = (threadId: string): string => `eq(thread_id, ${JSON.stringify(threadId)})`;
