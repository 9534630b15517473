import { type Answer, call } from '../../api/client.ts';
import type { UsageGroup, UsageRange } from './search.ts';

/** Usage by bucket and group, from one or several reports of the API. */

type Answered = Answer<'get', '/api/v1/orgs/current/billing/granular-usage'>['usage'][number];
export type UsageDimensions = Answered['dimensions'];

/** Half-open, in milliseconds since the epoch. */
export interface UsageBucket {
  readonly startMs: number;
  readonly endMs: number;
}

/** The figures of a bucket and a group. `traces` reports have no tokens and costs. */
export interface UsageRow {
  readonly bucket: UsageBucket;
  readonly dimensions: UsageDimensions;
  readonly traces: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly totalTokens: number;
  /** In US dollars; null if no run states a cost. */
  readonly totalCost: number | null;
}

export interface UsageReport {
  readonly buckets: readonly UsageBucket[];
  /** Ordered by bucket. */
  readonly rows: readonly UsageRow[];
}

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const strideMs = { '24h': hourMs, '31d': dayMs, '13w': 7 * dayMs };
const counts = { '24h': 24, '31d': 31, '13w': 13, '12m': 12 };
/** Maximum of the API in a request. */
const maxWorkspaces = 200;

/** Returns the buckets of a range, oldest first: hours, or days, weeks and calendar months in UTC. The last one has `now`. */
export function listBuckets(range: UsageRange, now: number): UsageBucket[] {
  const count = counts[range];
  const ages = Array.from({ length: count }, (_, index) => count - 1 - index);
  if (range === '12m') {
    const thisMonth = new Date(now);
    const monthStart = (age: number) => Date.UTC(thisMonth.getUTCFullYear(), thisMonth.getUTCMonth() - age);
    return ages.map((age) => ({ startMs: monthStart(age), endMs: monthStart(age - 1) }));
  }
  const unitMs = Math.min(strideMs[range], dayMs);
  const rangeEnd = (Math.floor(now / unitMs) + 1) * unitMs;
  return ages.map((age) => {
    const endMs = rangeEnd - age * strideMs[range];
    return { startMs: endMs - strideMs[range], endMs };
  });
}

/**
 * Reads the usage of a range that ends now. The API divides a range by its length, into hours, days or weeks as here,
 * but never into calendar months; so each month has a request, whose days are added up. That is exact: a trace and its
 * tokens count in one hour only. Requests are also divided by workspaces.
 */
export async function readUsage(
  kind: 'traces' | 'tokens',
  group: UsageGroup,
  range: UsageRange,
  workspaceIds: readonly string[],
  signal: AbortSignal,
): Promise<UsageReport> {
  const buckets = listBuckets(range, Date.now());
  const chunks = Array.from({ length: Math.ceil(workspaceIds.length / maxWorkspaces) }, (_, index) =>
    workspaceIds.slice(index * maxWorkspaces, (index + 1) * maxWorkspaces),
  );
  const periods =
    range === '12m' ? buckets : [{ startMs: buckets[0]?.startMs ?? 0, endMs: buckets.at(-1)?.endMs ?? 0 }];
  const answers = await Promise.all(
    periods.flatMap(({ startMs, endMs }) =>
      chunks.map((workspace_ids) =>
        call('get', '/api/v1/orgs/current/billing/granular-usage', {
          query: {
            start_time: new Date(startMs).toISOString(),
            // The API rounds up to the hour. Only ranges of less than a day have hours.
            end_time: new Date(endMs - 1).toISOString(),
            workspace_ids,
            group_by: group,
            kind,
          },
          signal,
        }),
      ),
    ),
  );
  const answered = answers.flatMap(({ usage }) => usage);
  const byBucket = new Map<UsageBucket, Answered[]>(buckets.map((bucket) => [bucket, []]));
  for (const answer of answered) {
    const time = Date.parse(answer.time_bucket);
    const bucket = buckets.find(({ startMs, endMs }) => startMs <= time && time < endMs);
    if (bucket) byBucket.get(bucket)?.push(answer);
  }
  return { buckets, rows: [...byBucket].flatMap(([bucket, found]) => addUp(bucket, found)) };
}

/** Returns the rows of a bucket, with rows of equal dimensions added up. */
function addUp(bucket: UsageBucket, answered: readonly Answered[]): UsageRow[] {
  const rows = new Map<string, UsageRow>();
  for (const answer of answered) {
    const { dimensions, total_cost: cost = null } = answer;
    const key = JSON.stringify(dimensions);
    const sum = rows.get(key);
    rows.set(key, {
      bucket,
      dimensions,
      traces: (sum?.traces ?? 0) + (answer.traces ?? 0),
      promptTokens: (sum?.promptTokens ?? 0) + (answer.prompt_tokens ?? 0),
      completionTokens: (sum?.completionTokens ?? 0) + (answer.completion_tokens ?? 0),
      totalTokens: (sum?.totalTokens ?? 0) + (answer.total_tokens ?? 0),
      totalCost: cost === null ? (sum?.totalCost ?? null) : (sum?.totalCost ?? 0) + cost,
    });
  }
  return [...rows.values()];
}
