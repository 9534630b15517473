import type { GranularUsage } from '../../../pipelines/usage/granular-usage.ts';
import { formatUsageTime } from './usage-time.ts';

/**
 * Serialises the body of GET /orgs/current/billing/granular-usage according to its schema. A month by API key has tens
 * of thousands of rows that share a few hundred dimensions, so each dimension is serialised once.
 */
export function usageJson({ stride, dimensions, buckets }: GranularUsage): Buffer {
  const dimensionTexts = dimensions.map((dimension) => `,"dimensions":${JSON.stringify(dimension)},"traces":`);
  let rows = '';
  for (const { startSeconds, traces } of buckets) {
    const head = `{"time_bucket":"${formatUsageTime(startSeconds)}"`;
    for (let index = 0; index < traces.length; index++) {
      if (traces[index] === 0) continue;
      rows += `${rows === '' ? '' : ','}${head}${dimensionTexts[index]}${traces[index]}}`;
    }
  }
  return Buffer.from(`{"stride":${JSON.stringify({ days: stride.days, hours: stride.hours })},"usage":[${rows}]}`);
}
