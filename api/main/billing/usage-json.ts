import type { GranularUsage } from '../../../pipelines/usage/granular-usage.ts';
import { formatUsageTime } from './usage-time.ts';

/**
 * The body of GET /orgs/current/billing/granular-usage, as its schema says. Written by hand, because a month by API key has
 * tens of thousands of rows that share a few hundred dimensions: each of those becomes text once.
 */
export function usageJson({ stride, dimensions, buckets }: GranularUsage): Buffer {
  const dimensionTexts = dimensions.map((dimension) => `,"dimensions":${JSON.stringify(dimension)},"traces":`);
  let rows = '';
  for (const { startSeconds, traces } of buckets) {
    const head = `{"time_bucket":"${formatUsageTime(startSeconds)}"`;
    for (let place = 0; place < traces.length; place++) {
      if (traces[place] === 0) continue;
      rows += `${rows === '' ? '' : ','}${head}${dimensionTexts[place]}${traces[place]}}`;
    }
  }
  return Buffer.from(`{"stride":${JSON.stringify({ days: stride.days, hours: stride.hours })},"usage":[${rows}]}`);
}
