import { readKey } from '../../read-search.ts';

/** Search parameters of the usage screen. */
export interface UsageSearch {
  readonly range?: UsageRange | undefined;
  readonly group?: UsageGroup | undefined;
  /** Metric of the chart and of the columns of buckets. Default: traces. */
  readonly show?: UsageMetric | undefined;
}

/** Ranges by the size of their buckets. All of them end with the bucket of the present. */
export const usageRanges = {
  '24h': 'Last 24 hours, by hour',
  '31d': 'Last 31 days, by day',
  '13w': 'Last 13 weeks, by week',
  '12m': 'Last 12 months, by month',
} as const;
export type UsageRange = keyof typeof usageRanges;
export const usageRangeNotes: Readonly<Record<UsageRange, string>> = {
  '24h': 'hours in your time zone',
  '31d': 'days in UTC',
  '13w': 'weeks in UTC',
  '12m': 'months in UTC',
};

export const usageGroups = { workspace: 'Workspace', project: 'Project', user: 'User', api_key: 'API key' } as const;
export type UsageGroup = keyof typeof usageGroups;

export const usageMetrics = { traces: 'Traces', tokens: 'Tokens', cost: 'Cost' } as const;
export type UsageMetric = keyof typeof usageMetrics;

export function readUsageSearch(search: Record<string, unknown>): UsageSearch {
  const { range, group, show } = search;
  return {
    range: readKey(usageRanges, range),
    group: readKey(usageGroups, group),
    show: readKey(usageMetrics, show),
  };
}
