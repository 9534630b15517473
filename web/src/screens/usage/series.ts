import type { Answer } from '../../api/client.ts';
import type { UsageGroup } from './search.ts';

type Report = Answer<'get', '/api/v1/orgs/current/billing/granular-usage'>;
type Dimensions = Report['usage'][number]['dimensions'];

export interface UsageSeries {
  /** Start of each bucket, in milliseconds since the epoch, without gaps. */
  readonly buckets: readonly number[];
  readonly totals: readonly number[];
  readonly total: number;
  /** The largest group first. */
  readonly groups: readonly UsageGroupSeries[];
  labelOf(bucket: number): string;
}
export interface UsageGroupSeries {
  readonly key: string;
  readonly name: string;
  /** Traces by bucket. */
  readonly counts: readonly number[];
  readonly sum: number;
  readonly color: string;
}

/** Colours of the groups, with enough contrast to each other and to both backgrounds; further groups are grey. */
const colors = ['#1d87a8', '#d0782a', '#7b5cc4', '#3a9b62', '#c4506e', '#8f8a1f', '#5a7fd6', '#a0693f'];
export const otherColor = '#7d8894';

/** Arranges a usage report by group and bucket. */
export function buildSeries({ stride, usage }: Report, group: UsageGroup): UsageSeries {
  const strideMs = (stride.days * 24 + stride.hours) * 3_600_000;
  const times = usage.map(({ time_bucket }) => Date.parse(time_bucket));
  const first = Math.min(...times);
  const count = times.length === 0 ? 0 : Math.round((Math.max(...times) - first) / strideMs) + 1;
  const buckets = Array.from({ length: count }, (_, index) => first + index * strideMs);
  const byKey = new Map<string, { name: string; counts: number[] }>();
  for (const { time_bucket, dimensions, traces } of usage) {
    const { key, name } = identify(dimensions, group);
    const found = byKey.get(key) ?? { name, counts: new Array<number>(count).fill(0) };
    const index = Math.round((Date.parse(time_bucket) - first) / strideMs);
    found.counts[index] = (found.counts[index] ?? 0) + (traces ?? 0);
    byKey.set(key, found);
  }
  const groups = [...byKey]
    .map(([key, { name, counts }]) => ({ key, name, counts, sum: counts.reduce((sum, each) => sum + each, 0) }))
    .sort((a, b) => b.sum - a.sum)
    .map((each, index) => ({ ...each, color: colors[index] ?? otherColor }));
  const totals = buckets.map((_, index) => groups.reduce((sum, { counts }) => sum + (counts[index] ?? 0), 0));
  return {
    buckets,
    totals,
    total: totals.reduce((sum, each) => sum + each, 0),
    groups,
    // Buckets of days begin at midnight UTC, so that their labels are days of UTC.
    labelOf: (bucket) =>
      strideMs < 86_400_000
        ? `${String(new Date(bucket).getHours()).padStart(2, '0')}:00`
        : new Date(bucket).toISOString().slice(strideMs >= 365 * 86_400_000 ? 0 : 5, 10),
  };
}

function identify(dimensions: Dimensions, group: UsageGroup): { key: string; name: string } {
  const { workspace_id, workspace_name, project_id, project_name, user_id, user_email, api_key_short_key } = dimensions;
  const [key, name] = {
    workspace: [workspace_id, workspace_name],
    project: [project_id, project_name],
    user: [user_id, user_email],
    api_key: [api_key_short_key, api_key_short_key],
  }[group];
  return { key: key ?? '', name: name ?? key ?? '(none)' };
}
