import { readKey, readText } from '../../read-search.ts';

/** Search parameters of the traces screen: everything that the table shows is in the address. */
export interface TracesSearch {
  /** A preset of {@link ranges}. Default: the last day. */
  readonly range?: RangeName | undefined;
  /** Custom range in ISO 8601, instead of a preset. */
  readonly from?: string | undefined;
  readonly until?: string | undefined;
  /** Expression of the filter language. */
  readonly filter?: string | undefined;
  /** Expressions of quick filters, which must all match. */
  readonly quick?: readonly string[] | undefined;
  /** Default: only roots. */
  readonly runs?: 'all' | 'llm' | undefined;
  readonly live?: true | undefined;
}

export const ranges = {
  '15m': { label: 'Last 15 minutes', ms: 15 * 60_000 },
  '1h': { label: 'Last hour', ms: 3_600_000 },
  '24h': { label: 'Last 24 hours', ms: 86_400_000 },
  '7d': { label: 'Last 7 days', ms: 7 * 86_400_000 },
  '30d': { label: 'Last 30 days', ms: 30 * 86_400_000 },
  all: { label: 'All time', ms: undefined },
} as const;
export type RangeName = keyof typeof ranges;
export const defaultRange: RangeName = '24h';

export function readTracesSearch(search: Record<string, unknown>): TracesSearch {
  const { range, quick, runs } = search;
  return {
    range: readKey(ranges, range),
    from: readTime(search.from),
    until: readTime(search.until),
    filter: readText(search.filter),
    quick: Array.isArray(quick) && quick.length > 0 ? quick.filter((item) => typeof item === 'string') : undefined,
    runs: runs === 'all' || runs === 'llm' ? runs : undefined,
    live: search.live === true ? true : undefined,
  };
}

function readTime(value: unknown): string | undefined {
  return typeof value === 'string' && !Number.isNaN(Date.parse(value)) ? value : undefined;
}

/** The conditions of a query for runs, in the form of version 2 of the API. */
export interface RunConditions {
  readonly project_ids: string[];
  readonly min_start_time: string;
  readonly max_start_time?: string;
  readonly filter?: string;
  readonly run_type?: 'LLM';
  readonly is_root?: true;
}

/** Returns the conditions of `search`; a preset range ends at `now`, in milliseconds since the epoch. */
export function buildConditions(projectId: string, search: TracesSearch, now: number): RunConditions {
  const { from, until, filter, quick = [], runs } = search;
  const { ms } = ranges[search.range ?? defaultRange];
  const isOwn = from !== undefined || until !== undefined;
  const start = isOwn ? from : ms === undefined ? undefined : new Date(now - ms).toISOString();
  const all = [...quick, ...(filter === undefined ? [] : [filter])];
  return {
    project_ids: [projectId],
    min_start_time: start ?? '1970-01-01T00:00:00Z',
    ...(until === undefined ? {} : { max_start_time: until }),
    ...(all.length === 0 ? {} : { filter: all.length === 1 ? (all[0] as string) : `and(${all.join(', ')})` }),
    ...(runs === 'all' ? {} : runs === 'llm' ? { run_type: 'LLM' } : { is_root: true }),
  };
}

/** Converts the conditions to the form of version 1, which has the statistics. */
export function toStatsConditions(conditions: RunConditions) {
  return {
    session: conditions.project_ids,
    start_time: conditions.min_start_time,
    // In version 1, `end_time` restricts the end of runs.
    search_filter: conditions.max_start_time === undefined ? null : `lte(start_time, "${conditions.max_start_time}")`,
    filter: conditions.filter ?? null,
    ...(conditions.is_root ? { is_root: true } : {}),
    ...(conditions.run_type ? { run_type: 'llm' as const } : {}),
  };
}
