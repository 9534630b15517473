/** Search parameters of the usage screen. */
export interface UsageSearch {
  readonly range?: UsageRange | undefined;
  readonly group?: UsageGroup | undefined;
  /** Metric of the chart and of the columns of buckets. Default: traces. */
  readonly show?: UsageMetric | undefined;
}

/** Ranges and the size of their buckets, which the API derives from the length of the range. */
export const usageRanges = {
  '24h': { label: 'Last 24 hours, by hour', hours: 23 },
  '31d': { label: 'Last 31 days, by day', hours: 31 * 24 },
  '93d': { label: 'Last 93 days, by week', hours: 93 * 24 },
  '366d': { label: 'Last 366 days, by 30 days', hours: 366 * 24 },
} as const;
export type UsageRange = keyof typeof usageRanges;

export const usageGroups = { workspace: 'Workspace', project: 'Project', user: 'User', api_key: 'API key' } as const;
export type UsageGroup = keyof typeof usageGroups;

export const usageMetrics = { traces: 'Traces', tokens: 'Tokens', cost: 'Cost' } as const;
export type UsageMetric = keyof typeof usageMetrics;

export function readUsageSearch(search: Record<string, unknown>): UsageSearch {
  const { range, group, show } = search;
  return {
    range: typeof range === 'string' && range in usageRanges ? (range as UsageRange) : undefined,
    group: typeof group === 'string' && group in usageGroups ? (group as UsageGroup) : undefined,
    show: typeof show === 'string' && show in usageMetrics ? (show as UsageMetric) : undefined,
  };
}
