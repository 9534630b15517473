/** Size of a bucket as the API returns it: exactly one of the two fields is not zero. */
export interface Stride {
  readonly days: number;
  readonly hours: number;
}

/** Requested time range: `startMs` inclusive, `endMs` exclusive; milliseconds since 1970, UTC. */
export interface UsageRange {
  readonly startMs: number;
  readonly endMs: number;
}

/** How a range is divided into buckets. Times are in seconds since 1970, UTC. */
export interface BucketPlan {
  readonly stride: Stride;
  readonly strideSeconds: number;
  /** The counted hours: the start of the range rounded down, and the end of the range rounded up to whole hours. */
  readonly startInclusiveSeconds: number;
  readonly endExclusiveSeconds: number;
  /** Start of bucket 0: the hour of the start for hourly buckets, the UTC day of the start for larger ones. */
  readonly originSeconds: number;
}

export interface BucketBounds {
  readonly startSeconds: number;
  readonly endSeconds: number;
}

const hourSeconds = 3_600;
const daySeconds = 86_400;
const dayMs = daySeconds * 1_000;

/**
 * The strides and the ranges that they are used for, by unrounded length: less than a day for hourly buckets, otherwise
 * up to and including the given number of days. Longer ranges use {@link yearlyStride}.
 */
const strides: ReadonlyArray<{ readonly fits: (rangeMs: number) => boolean; readonly stride: Stride }> = [
  { fits: (rangeMs) => rangeMs < dayMs, stride: { days: 0, hours: 1 } },
  { fits: (rangeMs) => rangeMs <= 31 * dayMs, stride: { days: 1, hours: 0 } },
  { fits: (rangeMs) => rangeMs <= 93 * dayMs, stride: { days: 7, hours: 0 } },
  { fits: (rangeMs) => rangeMs <= 366 * dayMs, stride: { days: 30, hours: 0 } },
];
const yearlyStride: Stride = { days: 365, hours: 0 };

/** Bucket size of a range, by its unrounded length. */
export function chooseStride(range: UsageRange): Stride {
  const rangeMs = range.endMs - range.startMs;
  return strides.find(({ fits }) => fits(rangeMs))?.stride ?? yearlyStride;
}

/**
 * Plans how `range` is counted. All strides count the same whole hours and agree on the total; only the starts of the
 * buckets differ. `range.endMs` must be after `range.startMs`.
 */
export function planBuckets(range: UsageRange): BucketPlan {
  const stride = chooseStride(range);
  const startInclusiveSeconds = roundDownTo(Math.floor(range.startMs / 1_000), hourSeconds);
  return {
    stride,
    strideSeconds: stride.days * daySeconds + stride.hours * hourSeconds,
    startInclusiveSeconds,
    endExclusiveSeconds: -roundDownTo(-Math.ceil(range.endMs / 1_000), hourSeconds),
    originSeconds: stride.hours > 0 ? startInclusiveSeconds : roundDownTo(startInclusiveSeconds, daySeconds),
  };
}

/** Bounds of bucket `index`, half-open; the last bucket is clipped to the counted range. */
export function computeBucketBounds(plan: BucketPlan, index: number): BucketBounds {
  const startSeconds = plan.originSeconds + index * plan.strideSeconds;
  return { startSeconds, endSeconds: Math.min(startSeconds + plan.strideSeconds, plan.endExclusiveSeconds) };
}

function roundDownTo(value: number, step: number): number {
  return Math.floor(value / step) * step;
}
