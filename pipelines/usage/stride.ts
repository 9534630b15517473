/** The size of a bucket, as the answer names it: exactly one of the two is not zero. */
export interface Stride {
  readonly days: number;
  readonly hours: number;
}

/** A range of time as it was asked for: from `startMs`, up to but without `endMs`; milliseconds since 1970, UTC. */
export interface UsageRange {
  readonly startMs: number;
  readonly endMs: number;
}

/** How a range is cut. Every field in seconds since 1970, UTC. */
export interface BucketPlan {
  readonly stride: Stride;
  readonly strideSeconds: number;
  /** First hour that is counted, and the first that no longer is: floor(start) and ceil(end). */
  readonly startInclusiveSeconds: number;
  readonly endExclusiveSeconds: number;
  /** Where bucket 0 begins: the hour of the start for hourly buckets, the UTC day of the start for larger ones. */
  readonly originSeconds: number;
}

export interface BucketBounds {
  readonly startSeconds: number;
  readonly endSeconds: number;
}

const hourSeconds = 3_600;
const daySeconds = 86_400;
const dayMs = daySeconds * 1_000;

/** Largest raw range of each stride but the last. Hourly ends below its bound, the others with it. SPEC.md 4.2. */
const strides: ReadonlyArray<{ readonly fits: (rangeMs: number) => boolean; readonly stride: Stride }> = [
  { fits: (rangeMs) => rangeMs < dayMs, stride: { days: 0, hours: 1 } },
  { fits: (rangeMs) => rangeMs <= 31 * dayMs, stride: { days: 1, hours: 0 } },
  { fits: (rangeMs) => rangeMs <= 93 * dayMs, stride: { days: 7, hours: 0 } },
  { fits: (rangeMs) => rangeMs <= 366 * dayMs, stride: { days: 30, hours: 0 } },
];
const yearly: Stride = { days: 365, hours: 0 };

/** The bucket size of a range, from its raw length: rounding to hours never changes it. */
export function strideOf(range: UsageRange): Stride {
  const rangeMs = range.endMs - range.startMs;
  return strides.find(({ fits }) => fits(rangeMs))?.stride ?? yearly;
}

/**
 * How `range` is counted. Whatever the stride, the same whole hours are counted, so all strides agree on the total;
 * only where the buckets begin differs. `range.endMs` must lie after `range.startMs`.
 */
export function planBuckets(range: UsageRange): BucketPlan {
  const stride = strideOf(range);
  const startInclusiveSeconds = floorTo(Math.floor(range.startMs / 1_000), hourSeconds);
  return {
    stride,
    strideSeconds: stride.days * daySeconds + stride.hours * hourSeconds,
    startInclusiveSeconds,
    endExclusiveSeconds: -floorTo(-Math.ceil(range.endMs / 1_000), hourSeconds),
    originSeconds: stride.hours > 0 ? startInclusiveSeconds : floorTo(startInclusiveSeconds, daySeconds),
  };
}

/** Bucket `index` of a plan, half-open; the last one is cut where counting ends. */
export function bucketBounds(plan: BucketPlan, index: number): BucketBounds {
  const startSeconds = plan.originSeconds + index * plan.strideSeconds;
  return { startSeconds, endSeconds: Math.min(startSeconds + plan.strideSeconds, plan.endExclusiveSeconds) };
}

function floorTo(value: number, step: number): number {
  return Math.floor(value / step) * step;
}
