import { expect, it } from 'vitest';
import { formatUsageJson, formatUsageTime } from '../../../../api/main/usage-formats.ts';
import { runInTimeSlices } from '../../../../infra/timeouts/time-slices.ts';
import { type GranularUsage, generateUsageRows } from '../../../../pipelines/usage/report.ts';
import fc from '../../../house/fast-check.ts';

const usages: fc.Arbitrary<GranularUsage> = fc
  .tuple(fc.uniqueArray(fc.string({ unit: 'binary', maxLength: 20 }), { maxLength: 6 }), fc.nat(5))
  .chain(([names, bucketCount]) =>
    fc.array(fc.array(fc.nat(3), { minLength: names.length, maxLength: names.length }), { maxLength: bucketCount }).map(
      (counts): GranularUsage => ({
        stride: { days: 1, hours: 0 },
        dimensions: names.map((name) => ({ user_id: null, user_email: name })),
        buckets: counts.map((traces, index) => ({
          startSeconds: index * 86_400,
          endSeconds: (index + 1) * 86_400,
          traces: Float64Array.from(traces),
        })),
      }),
    ),
  );

it('is valid JSON of the rows, whatever characters the names contain', async () => {
  await fc.assert(
    fc.asyncProperty(usages, async (usage) => {
      const body = await runInTimeSlices(formatUsageJson(usage));
      expect(JSON.parse(body.toString('utf8'))).toEqual({
        stride: { days: 1, hours: 0 },
        usage: JSON.parse(
          JSON.stringify(
            [...generateUsageRows(usage)].map(({ startSeconds, dimensions, traces }) => ({
              time_bucket: formatUsageTime(startSeconds),
              dimensions,
              traces,
            })),
          ),
        ),
      });
    }),
  );
});
