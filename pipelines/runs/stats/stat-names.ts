import { detailNames } from '../descendant-figures.ts';
import type { FigureName } from './figure-sums.ts';

/** The statistics of each figure: total, median and 99th percentile. Some figures have no name for a percentile. */
export const figureStats = [
  { figure: 'total_tokens', stats: ['total_tokens', 'median_tokens', 'tokens_p99'] },
  { figure: 'prompt_tokens', stats: ['prompt_tokens', 'prompt_tokens_p50', 'prompt_tokens_p99'] },
  { figure: 'completion_tokens', stats: ['completion_tokens', 'completion_tokens_p50', 'completion_tokens_p99'] },
  { figure: 'total_cost', stats: ['total_cost', 'cost_p50', 'cost_p99'] },
  { figure: 'prompt_cost', stats: ['prompt_cost'] },
  { figure: 'completion_cost', stats: ['completion_cost'] },
] as const satisfies readonly { readonly figure: FigureName; readonly stats: readonly string[] }[];

export const detailStats = detailNames;

/** Every statistic of a set of runs. Source: the public schema of run statistics. */
export const statNames = [
  'run_count',
  'latency_p50',
  'latency_p99',
  'latency_avg',
  'first_token_p50',
  'first_token_p99',
  ...figureStats.flatMap(({ stats }) => [...stats]),
  'last_run_start_time',
  'feedback_stats',
  'run_facets',
  'error_rate',
  'streaming_rate',
  ...detailStats,
] as const;
export type StatName = (typeof statNames)[number];

/** Fields whose most frequent values are listed as facets. */
export type FacetName = 'name' | 'run_type' | 'status';

/** A value that many runs have, with the filter that selects those runs. */
export interface RunFacet {
  readonly key: FacetName;
  readonly value: string;
  readonly query: string;
  /** Number of runs. The number is approximate if the field has more than a thousand values. */
  readonly n: number;
}

type DetailName = (typeof detailNames)[number];
type NumberName = Exclude<StatName, DetailName | 'last_run_start_time' | 'feedback_stats' | 'run_facets'>;

/** Selected statistics by name. Latencies are in seconds; tokens and costs are numbers. */
export type RunStats = Partial<
  Record<NumberName, number | null> &
    Record<DetailName, Record<string, number>> & {
      last_run_start_time: string | null;
      /** Feedback statistics by feedback key. */
      feedback_stats: Record<string, Record<string, unknown>>;
      run_facets: RunFacet[];
    }
>;
