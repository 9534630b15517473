import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useEffect, useMemo } from 'react';
import { type Answer, call, fillPath, send } from '../../api/client.ts';
import { usePermission } from '../../api/session.ts';
import { parseToShow } from '../../components/values/exact-json.ts';
import { compareExample, type ExampleWithRuns } from './comparison.ts';
import type { CompareSearch } from './search.ts';

/** Examples of a page. Their runs have whole outputs, because previews can be equal where the outputs are not. */
const pageSize = 20;
/** Experiments side by side. */
export const maxExperiments = 4;
/** Feedback keys whose configs are read. */
const maxKeys = 100;
const selects = [
  'ID',
  'PROJECT_ID',
  'STATUS',
  'ERROR_PREVIEW',
  'OUTPUTS',
  'LATENCY_SECONDS',
  'TOTAL_TOKENS',
  'TOTAL_COST',
  'FEEDBACK_STATS',
];

export type Experiment = Answer<'get', '/api/v1/sessions'>[number];
/** Statistics of experiments that are shown above the examples and in lists. */
export const experimentStats = [
  'run_count',
  'latency_p50',
  'latency_p99',
  'error_rate',
  'total_tokens',
  'total_cost',
  'feedback_stats',
  'session_feedback_stats',
] as const;

interface ComparisonPage {
  readonly items: readonly ExampleWithRuns[];
  readonly next_cursor: string | null;
}

/** Reads the figures of experiments, in the order of `ids`. */
export function useExperiments(datasetId: string, ids: readonly string[]) {
  const canReadRuns = usePermission('runs:read');
  return useQuery({
    queryKey: ['dataset', datasetId, 'experiments-by-id', ...ids],
    queryFn: async ({ signal }) => {
      const found = await call('get', '/api/v1/sessions', {
        query: {
          id: [...ids],
          reference_dataset: [datasetId],
          limit: 100,
          ...(canReadRuns ? { include_stats: true, stats_select: [...experimentStats] } : {}),
        },
        signal,
      });
      return ids.flatMap((id) => found.find((each) => each.id === id) ?? []);
    },
    enabled: ids.length > 0,
    placeholderData: keepPreviousData,
  });
}

const noKeys: ReadonlySet<string> = new Set();

/** Reads which of the feedback keys are configured so that lower scores are better. */
export function useLowerIsBetter(keys: readonly string[]) {
  const canRead = usePermission('feedback:read');
  return useQuery({
    queryKey: ['feedback-configs', ...keys],
    queryFn: async ({ signal }): Promise<ReadonlySet<string>> => {
      if (keys.length === 0 || !canRead) return noKeys;
      const configs = await call('get', '/api/v1/feedback-configs', {
        query: { key: keys.slice(0, maxKeys), limit: maxKeys },
        signal,
      });
      const lower = configs.filter(({ is_lower_score_better }) => is_lower_score_better);
      return new Set(lower.map(({ feedback_key }) => feedback_key));
    },
    staleTime: 60_000,
  });
}

/** Reads the examples with their runs page by page, and compares the experiments. All pages are of one version. */
export function useComparison(
  datasetId: string,
  experimentIds: readonly string[],
  { comparativeExperiment, show }: CompareSearch,
  lowerIsBetter: ReadonlySet<string> = noKeys,
) {
  const pages = useInfiniteQuery({
    queryKey: ['dataset', datasetId, 'comparison', comparativeExperiment, ...experimentIds],
    queryFn: async ({ pageParam, signal }): Promise<ComparisonPage> => {
      const url = fillPath('/api/v2/datasets/{dataset_id}/experiment-runs', { dataset_id: datasetId }, {});
      const body = {
        experiment_ids: experimentIds,
        selects,
        page_size: pageSize,
        cursor: pageParam,
        comparative_experiment_id: comparativeExperiment,
      };
      return parseToShow(await (await send('post', url, { body, signal })).text()) as ComparisonPage;
    },
    initialPageParam: null as string | null,
    getNextPageParam: ({ next_cursor }) => next_cursor,
    enabled: experimentIds.length > 0,
  });
  const compared = useMemo(
    () =>
      pages.data?.pages.flatMap(({ items }) =>
        items.map((item) => compareExample(item, experimentIds, lowerIsBetter)),
      ) ?? [],
    [pages.data, experimentIds, lowerIsBetter],
  );
  const rows = useMemo(
    () =>
      show === undefined
        ? compared
        : compared.filter(({ isDifferent, isRegression }) => (show === 'regressions' ? isRegression : isDifferent)),
    [compared, show],
  );
  // The table loads more rows when it is scrolled; without rows there is nothing to scroll.
  const { hasNextPage, isFetching, isError, fetchNextPage } = pages;
  const isEmpty = rows.length === 0;
  useEffect(() => {
    if (isEmpty && hasNextPage && !isFetching && !isError) void fetchNextPage();
  }, [isEmpty, hasNextPage, isFetching, isError, fetchNextPage]);
  return { pages, compared, rows };
}
