import { formatCost, formatCount } from '../../components/format.ts';
import type { UsageDimensions, UsageReport, UsageRow } from './report.ts';
import type { UsageGroup, UsageMetric, UsageRange } from './search.ts';

type Figures = Readonly<Record<UsageMetric, number>>;

export interface UsageSeries {
  /** Start of each bucket, in milliseconds since the epoch, without gaps. */
  readonly buckets: readonly number[];
  readonly totals: readonly number[];
  /** Sums of all buckets and groups. */
  readonly sums: Figures;
  readonly metric: UsageMetric;
  /** The largest group first. */
  readonly groups: readonly UsageGroupSeries[];
  formatBucket(bucket: number): string;
}
export interface UsageGroupSeries {
  readonly key: string;
  readonly name: string;
  /** Values of the metric by bucket. */
  readonly counts: readonly number[];
  readonly sums: Figures;
  readonly color: string;
}

/** Colours of the groups, with enough contrast to each other and to both backgrounds; further groups are grey. */
const colors = ['#1d87a8', '#d0782a', '#7b5cc4', '#3a9b62', '#c4506e', '#8f8a1f', '#5a7fd6', '#a0693f'];
const otherColor = '#7d8894';

export const metricFormats: Readonly<Record<UsageMetric, (value: number) => string>> = {
  traces: formatCount,
  tokens: formatCount,
  cost: formatCost,
};

const noFigures: Figures = { traces: 0, tokens: 0, cost: 0 };
const readFigures = ({ traces, totalTokens, totalCost }: UsageRow): Figures => ({
  traces,
  tokens: totalTokens,
  cost: totalCost ?? 0,
});
const addFigures = (one: Figures, other: Figures): Figures => ({
  traces: one.traces + other.traces,
  tokens: one.tokens + other.tokens,
  cost: one.cost + other.cost,
});

/** Arranges a usage report by group and bucket, with the values of `metric` by bucket. */
export function buildSeries(
  report: UsageReport,
  range: UsageRange,
  group: UsageGroup,
  metric: UsageMetric,
): UsageSeries {
  const buckets = report.buckets.map(({ startMs }) => startMs);
  const byKey = new Map<string, { name: string; counts: number[]; sums: Figures }>();
  for (const row of report.rows) {
    const { key, name } = identify(row.dimensions, group);
    const found = byKey.get(key) ?? { name, counts: new Array<number>(buckets.length).fill(0), sums: noFigures };
    const index = buckets.indexOf(row.bucket.startMs);
    const figures = readFigures(row);
    found.counts[index] = (found.counts[index] ?? 0) + figures[metric];
    byKey.set(key, { ...found, sums: addFigures(found.sums, figures) });
  }
  const groups = [...byKey]
    .map(([key, each]) => ({ key, ...each }))
    .sort((a, b) => b.sums[metric] - a.sums[metric])
    .map((each, index) => ({ ...each, color: colors[index] ?? otherColor }));
  const totals = buckets.map((_, index) => groups.reduce((sum, { counts }) => sum + (counts[index] ?? 0), 0));
  return {
    buckets,
    totals,
    sums: groups.map(({ sums }) => sums).reduce(addFigures, noFigures),
    metric,
    groups,
    formatBucket: (bucket) => formatBucket(range, new Date(bucket)),
  };
}

/** Returns at most `max` groups: the largest ones, and the sum of the others. */
export function limitGroups({ groups, buckets }: UsageSeries, max: number): readonly UsageGroupSeries[] {
  if (groups.length <= max) return groups;
  const others = groups.slice(max - 1);
  const counts = buckets.map((_, index) => others.reduce((sum, each) => sum + (each.counts[index] ?? 0), 0));
  const sums = others.map((each) => each.sums).reduce(addFigures, noFigures);
  const name = `${formatCount(others.length)} others`;
  return [...groups.slice(0, max - 1), { key: 'others', name, counts, sums, color: otherColor }];
}

/** Returns the label of a bucket: an hour in the zone of the viewer; otherwise a day or month in UTC. */
function formatBucket(range: UsageRange, start: Date): string {
  // In some zones, the hours of UTC begin at half past.
  if (range === '24h')
    return [start.getHours(), start.getMinutes()].map((part) => String(part).padStart(2, '0')).join(':');
  const iso = start.toISOString();
  return range === '12m' ? iso.slice(0, 7) : iso.slice(5, 10);
}

function identify(dimensions: UsageDimensions, group: UsageGroup): { key: string; name: string } {
  const { workspace_id, workspace_name, project_id, project_name, user_id, user_email, api_key_short_key } = dimensions;
  const [key, name] = {
    workspace: [workspace_id, workspace_name],
    project: [project_id, project_name],
    user: [user_id, user_email],
    api_key: [api_key_short_key, api_key_short_key],
  }[group];
  return { key: key ?? '', name: name ?? key ?? '(none)' };
}
