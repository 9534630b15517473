import { type InfiniteData, keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';
import { type Answer, type Body, call } from '../../api/client.ts';
import { useReadTime } from '../../api/read-time.ts';
import { buildConditions, type RunConditions, type TracesSearch, toStatsConditions } from './search.ts';

type RunPage = Answer<'post', '/api/v2/runs/query'>;
export type RunRow = RunPage['items'][number];
type Select = NonNullable<Body<'post', '/api/v2/runs/query'>['selects']>[number];

const lists = ['runs', 'runs-head', 'run-stats'];
const pageSize = 100;
const livePollMs = 2000;
/** Fields of the table. Inputs and outputs are read as previews, which have a bounded size. */
const selects = [
  'ID',
  'NAME',
  'RUN_TYPE',
  'STATUS',
  'START_TIME',
  'LATENCY_SECONDS',
  'FIRST_TOKEN_TIME',
  'ERROR_PREVIEW',
  'INPUTS_PREVIEW',
  'OUTPUTS_PREVIEW',
  'TRACE_ID',
  'THREAD_ID',
  'IS_ROOT',
  'TOTAL_TOKENS',
  'TOTAL_COST',
  'TAGS',
  'FEEDBACK_STATS',
] as const;

/** Maximum number of rows that live updates add. Beyond it, the pages must be read again. */
const maxLiveRows = 2000;

/** The rows of the newest page, and of earlier ones. */
interface Head {
  readonly rows: readonly RunRow[];
  /** All runs that match and began after this time, in milliseconds since the epoch, are among `rows`. */
  readonly wholeAfter: number;
  /** Whether there are newer runs that are not shown. */
  readonly isBehind?: true;
}

/**
 * Reads runs, newest first, page by page. With `isLive`, reads the newest page every two seconds. If it does not reach
 * the known rows, for example because the browser did not poll in the background, the pages are read anew: at once if
 * only one is loaded, otherwise when `catchUp` is called, because the viewer reads older rows.
 *
 * @param key All values that the conditions depend on.
 */
export function useRunPages({
  key,
  conditions,
  selects,
  pageSize,
  isLive,
}: {
  readonly key: readonly unknown[];
  readonly conditions: RunConditions;
  readonly selects: readonly Select[];
  readonly pageSize: number;
  readonly isLive: boolean;
}) {
  const client = useQueryClient();
  const read = (cursor: string | null, signal: AbortSignal) =>
    call('post', '/api/v2/runs/query', {
      body: { ...conditions, selects: [...selects], page_size: pageSize, cursor },
      signal,
    });
  const pagesKey = ['runs', ...key];
  const pages = useInfiniteQuery({
    queryKey: pagesKey,
    queryFn: ({ pageParam, signal }) => read(pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => (page.has_more ? page.next_cursor : undefined),
    placeholderData: keepPreviousData,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const headKey = ['runs-head', ...key];
  const head = useQuery({
    queryKey: headKey,
    queryFn: async ({ signal }): Promise<Head> => {
      const { items, has_more } = await read(null, signal);
      if (!has_more) return { rows: items, wholeAfter: Number.NEGATIVE_INFINITY };
      // In milliseconds, because the order of runs can differ from that of their starts below that.
      const wholeAfter = Date.parse(items.at(-1)?.start_time ?? '');
      const loaded = client.getQueryData<InfiniteData<RunPage>>(pagesKey)?.pages ?? [];
      const former = client.getQueryData<Head>(headKey);
      const known = former?.rows ?? loaded[0]?.items ?? [];
      const ids = new Set([...known, ...loaded.flatMap((page) => page.items)].map(({ id }) => id));
      if (known.length === 0 || items.some(({ id }) => ids.has(id)))
        // Rows that newer runs have moved out of the first page stay.
        return { rows: mergeRows(items, known, wholeAfter), wholeAfter };
      if (loaded.length > 1) return { rows: known, wholeAfter: former?.wholeAfter ?? Number.NaN, isBehind: true };
      void client.resetQueries({ queryKey: pagesKey, exact: true });
      return { rows: items, wholeAfter };
    },
    enabled: isLive,
    refetchInterval: livePollMs,
  });
  const rows = useMemo(() => {
    const older = pages.data?.pages.flatMap(({ items }) => items) ?? [];
    if (!isLive || !head.data) return older;
    return mergeRows(head.data.rows, older, head.data.wholeAfter);
  }, [pages.data, head.data, isLive]);
  return {
    pages,
    rows,
    liveError: head.error,
    isFull: (head.data?.rows.length ?? 0) > maxLiveRows,
    /** Unset: the newest runs are shown. */
    catchUp:
      isLive && head.data?.isBehind
        ? () => {
            for (const queryKey of [pagesKey, headKey]) void client.resetQueries({ queryKey, exact: true });
          }
        : undefined,
  };
}

/** Reads the runs that match `search`, and their statistics. */
export function useRuns(projectId: string, search: TracesSearch) {
  const { live, ...filters } = search;
  // A preset range ends now; a fixed point keeps the pages of one query together until `restart`.
  const { now, readAnew } = useReadTime(lists, projectId, filters);
  const conditions = useMemo(() => buildConditions(projectId, search, now), [projectId, search, now]);
  const { pages, rows, liveError, isFull, catchUp } = useRunPages({
    key: [projectId, filters, now],
    conditions,
    selects,
    pageSize,
    isLive: live === true,
  });
  useEffect(() => {
    if (isFull) readAnew();
  }, [isFull, readAnew]);
  const stats = useQuery({
    queryKey: ['run-stats', projectId, filters, now],
    queryFn: ({ signal }) =>
      call('post', '/api/v1/runs/stats', {
        body: {
          // Of a preset range, the figures move with the time.
          ...toStatsConditions(live ? buildConditions(projectId, search, Date.now()) : conditions),
          select: ['run_count', 'latency_p50', 'latency_p99', 'error_rate', 'total_tokens', 'total_cost', 'run_facets'],
        },
        signal,
      }),
    placeholderData: keepPreviousData,
    ...(live ? { refetchInterval: livePollMs * 5 } : {}),
  });
  return {
    pages,
    rows,
    stats: { ...stats, data: stats.data as RunStats | undefined },
    conditions,
    liveError,
    catchUp,
    restart: readAnew,
  };
}

export interface RunStats {
  readonly run_count?: number | null;
  readonly latency_p50?: number | null;
  readonly latency_p99?: number | null;
  readonly error_rate?: number | null;
  readonly total_tokens?: number | null;
  readonly total_cost?: number | null;
  readonly run_facets?: readonly Facet[] | null;
}
/** A frequent value of a field, with the expression that selects its runs. */
export interface Facet {
  readonly key: string;
  readonly value: string;
  readonly query: string;
  readonly n: number;
}

/**
 * Returns the newest runs, then the older ones that are not among them. Those that began after `wholeAfter` no longer
 * match, for example because they have ended.
 */
function mergeRows(head: readonly RunRow[], older: readonly RunRow[], wholeAfter: number): readonly RunRow[] {
  const known = new Set(head.map(({ id }) => id));
  return [
    ...head,
    ...older.filter(({ id, start_time }) => !known.has(id) && !(Date.parse(start_time ?? '') > wholeAfter)),
  ];
}
