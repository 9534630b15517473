import { describe, expect, it } from 'vitest';
import { chooseStride, computeBucketBounds, planBuckets } from '../../../pipelines/usage/rollup-query.ts';
import fc from '../../house/fast-check.ts';

const secondMs = 1_000;
const dayMs = 86_400_000;
const hourly = { days: 0, hours: 1 };
const days = (count: number) => ({ days: count, hours: 0 });
const iso = (seconds: number) => new Date(seconds * 1_000).toISOString().replace('.000', '');

describe('the stride of a range', () => {
  const table: Array<[string, number, { days: number; hours: number }]> = [
    ['one millisecond', 1, hourly],
    ['23:59:59', dayMs - secondMs, hourly],
    ['a millisecond under a day', dayMs - 1, hourly],
    ['exactly 1 day', dayMs, days(1)],
    ['1 day and a second', dayMs + secondMs, days(1)],
    ['exactly 31 days', 31 * dayMs, days(1)],
    ['31 days and a second', 31 * dayMs + secondMs, days(7)],
    ['exactly 32 days', 32 * dayMs, days(7)],
    ['exactly 93 days', 93 * dayMs, days(7)],
    ['93 days and a second', 93 * dayMs + secondMs, days(30)],
    ['exactly 94 days', 94 * dayMs, days(30)],
    ['exactly 366 days', 366 * dayMs, days(30)],
    ['366 days and a second', 366 * dayMs + secondMs, days(365)],
    ['exactly 367 days', 367 * dayMs, days(365)],
  ];
  // Starts around the European and American daylight-saving changes: buckets are in UTC and must not shift.
  const starts = ['2026-01-01T00:00:00Z', '2026-03-08T09:30:00Z', '2026-03-29T00:59:59.999Z', '2025-10-26T01:00:00Z'];
  for (const [name, lengthMs, stride] of table) {
    it(`is ${stride.hours > 0 ? 'hourly' : `${stride.days} days`} for ${name}`, () => {
      for (const start of starts) {
        const startMs = Date.parse(start);
        expect(chooseStride({ startMs, endMs: startMs + lengthMs })).toEqual(stride);
      }
    });
  }
});

describe('the buckets of a range', () => {
  const listBuckets = (start: string, end: string) => {
    const plan = planBuckets({ startMs: Date.parse(start), endMs: Date.parse(end) });
    const last = Math.ceil((plan.endExclusiveSeconds - plan.originSeconds) / plan.strideSeconds) - 1;
    return [0, 1, last].map((index) => {
      const { startSeconds, endSeconds } = computeBucketBounds(plan, index);
      return `${iso(startSeconds)}/${iso(endSeconds)}`;
    });
  };

  it('begin with the hour of the start and end with the hour of the end when hourly', () => {
    expect(listBuckets('2026-03-05T10:59:00Z', '2026-03-05T13:00:01Z')).toEqual([
      '2026-03-05T10:00:00Z/2026-03-05T11:00:00Z',
      '2026-03-05T11:00:00Z/2026-03-05T12:00:00Z',
      '2026-03-05T13:00:00Z/2026-03-05T14:00:00Z',
    ]);
  });

  it('are labelled by UTC days when daily, the last one truncated', () => {
    expect(listBuckets('2026-03-05T10:59:00Z', '2026-03-09T06:30:00Z')).toEqual([
      '2026-03-05T00:00:00Z/2026-03-06T00:00:00Z',
      '2026-03-06T00:00:00Z/2026-03-07T00:00:00Z',
      '2026-03-09T00:00:00Z/2026-03-09T07:00:00Z',
    ]);
  });

  it('have steps of seven days from the day of the start when weekly', () => {
    expect(listBuckets('2026-01-01T05:00:00Z', '2026-02-05T00:00:00Z')).toEqual([
      '2026-01-01T00:00:00Z/2026-01-08T00:00:00Z',
      '2026-01-08T00:00:00Z/2026-01-15T00:00:00Z',
      '2026-01-29T00:00:00Z/2026-02-05T00:00:00Z',
    ]);
  });

  it('partition the counted hours of any range', () => {
    const instants = fc.integer({ min: Date.UTC(1970, 0, 1), max: Date.UTC(2200, 0, 1) });
    fc.assert(
      fc.property(instants, fc.integer({ min: 1, max: 4 * 366 * dayMs }), (startMs, lengthMs) => {
        const endMs = startMs + lengthMs;
        const plan = planBuckets({ startMs, endMs });
        expect(plan.startInclusiveSeconds * 1_000).toBeLessThanOrEqual(startMs);
        expect(plan.startInclusiveSeconds * 1_000).toBeGreaterThan(startMs - 3_600_000);
        expect(plan.endExclusiveSeconds * 1_000).toBeGreaterThanOrEqual(endMs);
        expect(plan.endExclusiveSeconds * 1_000).toBeLessThan(endMs + 3_600_000);
        const buckets = Math.ceil((plan.endExclusiveSeconds - plan.originSeconds) / plan.strideSeconds);
        expect(computeBucketBounds(plan, 0).startSeconds).toBeLessThanOrEqual(plan.startInclusiveSeconds);
        expect(computeBucketBounds(plan, 0).endSeconds).toBeGreaterThan(plan.startInclusiveSeconds);
        expect(computeBucketBounds(plan, buckets - 1).endSeconds).toBe(plan.endExclusiveSeconds);
        for (let index = 1; index < Math.min(buckets, 100); index++) {
          expect(computeBucketBounds(plan, index).startSeconds).toBe(computeBucketBounds(plan, index - 1).endSeconds);
        }
      }),
    );
  });
});
